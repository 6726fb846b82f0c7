"""The library that the commands in ``scripts/`` share. It knows nothing of Snakemake."""
