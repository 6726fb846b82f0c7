# Calibration: every reference is graded before any candidate is, and admission decides from all of the records.


rule calibrate:
    input:
        study=ancient("results/{study}/study.json"),
        data=lambda wildcards: ancient(STUDY.staged(wildcards.benchmark)),
    output:
        "results/{study}/calibration/{benchmark}/{instance}/{repetition}.json",
    log:
        "results/{study}/logs/calibrate/{benchmark}/{instance}/{repetition}.log",
    group:
        "calibrate"
    conda:
        "../envs/assize.yaml"
    threads: lambda wildcards: STUDY.cpus(wildcards.benchmark)
    resources:
        mem_mb=lambda wildcards: STUDY.memory_mb(wildcards.benchmark),
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
        options=lambda wildcards: STUDY.options(wildcards.benchmark),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py {params.options} calibrate --study {input.study}"
        " --instance {wildcards.instance} --repetition {wildcards.repetition} > {log} 2>&1"


rule admit:
    input:
        study=ancient("results/{study}/study.json"),
        calibrations=lambda wildcards: STUDY.calibrations(wildcards.benchmark),
    output:
        "results/{study}/admission/{benchmark}.json",
    log:
        "results/{study}/logs/admit/{benchmark}.log",
    conda:
        "../envs/assize.yaml"
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py admit --study {input.study} > {log} 2>&1"
