"""The library that the commands in ``scripts/`` share. No record needs Snakemake: every command runs by hand."""
