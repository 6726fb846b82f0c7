# Every planned episode is one row.


rule census:
    input:
        grades=STUDY.grades(),
    output:
        record="results/{study}/census/census.json",
        rows="results/{study}/census/grades.csv",
    log:
        "results/{study}/logs/census.log",
    conda:
        "../envs/assize.yaml"
    params:
        digest=STUDY.digest,
    shell:
        "python scripts/census.py --study results/{wildcards.study}/study.json > {log} 2>&1"
