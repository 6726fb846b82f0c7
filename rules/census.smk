# Every planned episode is one row. The seal lists the hash of every file that the numbers stand on.


rule census:
    input:
        grades=STUDY.grades(),
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
