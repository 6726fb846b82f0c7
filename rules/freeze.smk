# The study with all its pins, as one small file. Whoever reads it does so through ancient(): adding a condition, an
# instance or a repeat rewrites it and must rerun nothing; what binds a grade is the digest of its terms, a param.


rule freeze:
    output:
        "results/{study}/study.json",
    log:
        "results/{study}/logs/freeze.log",
    conda:
        "../envs/assize.yaml"
    params:
        digest=STUDY.digest,
        options=freeze_options(workflow, config),
    shell:
        "python scripts/study.py freeze {params.options} --output {output} > {log} 2>&1"
