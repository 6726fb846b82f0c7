# Calibration: every reference is graded before any candidate is, and admission decides from the records. One that could
# not be graded at the last attempt has a record too, which bars; deleted, it is made again. Staged data is asked for
# here alone: the terms hold its hash, and everything else comes after a calibration.


rule calibrate:
    input:
        data=lambda wildcards: STUDY.staged(wildcards.benchmark),
        runtime=lambda wildcards: STUDY.runtime(wildcards.benchmark),
        ready=ancient(lambda wildcards: STUDY.ready(wildcards.benchmark)),
    output:
        "results/{study}/calibration/{benchmark}/{instance}/{repetition}.json",
    log:
        "results/{study}/logs/calibrate/{benchmark}/{instance}/{repetition}.log",
    group:
        lambda wildcards: STUDY.group("calibrate", wildcards.benchmark)
    conda:
        "../envs/assize.yaml"
    threads: lambda wildcards: STUDY.cpus(wildcards.benchmark)
    resources:
        evaluators=1,
        mem_mb=lambda wildcards: STUDY.memory_mb(wildcards.benchmark),
        runtime=lambda wildcards: STUDY.minutes(wildcards.benchmark),
        attempt=lambda wildcards, attempt: STUDY.attempt(attempt),
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
        options=lambda wildcards: STUDY.options(wildcards.benchmark),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py {params.options} calibrate --study results/{wildcards.study}/study.json"
        " --instance {wildcards.instance} --repetition {wildcards.repetition}"
        " --attempt {resources.attempt} > {log} 2>&1"


rule admit:
    input:
        calibrations=lambda wildcards: STUDY.calibrations(
            wildcards.benchmark, wildcards.instance
        ),
    output:
        "results/{study}/admission/{benchmark}/{instance}.json",
    log:
        "results/{study}/logs/admit/{benchmark}/{instance}.log",
    conda:
        "../envs/assize.yaml"
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py admit --study results/{wildcards.study}/study.json"
        " --instance {wildcards.instance} > {log} 2>&1"
