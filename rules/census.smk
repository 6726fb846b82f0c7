# Every planned episode is one row. The seal lists the hash of every file that the numbers stand on.


rule census:
    input:
        grades=STUDY.grades(),
        rules="config/harness-faults.yaml",
    output:
        record="results/{study}/census/census.json",
        rows="results/{study}/census/grades.csv",
        seal="results/{study}/census/SHA256SUMS",
    log:
        "results/{study}/logs/census.log",
    conda:
        "../envs/assize.yaml"
    params:
        digest=STUDY.digest,
    shell:
        "python scripts/census.py --study results/{wildcards.study}/study.json > {log} 2>&1"


# What the Slurm jobs used is no verdict's business: a file of its own, asked for once all records are there.


rule accounting:
    input:
        grades=STUDY.grades(),
    output:
        "results/{study}/census/accounting.json",
    log:
        "results/{study}/logs/accounting.log",
    conda:
        "../envs/assize.yaml"
    params:
        digest=STUDY.digest,
    shell:
        "python scripts/accounting.py --study results/{wildcards.study}/study.json > {log} 2>&1"
