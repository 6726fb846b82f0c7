"""The library that the commands in ``scripts/`` share. A record is made without Snakemake: every command runs by hand."""
