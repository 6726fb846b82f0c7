# Judge one snapshot. Every evaluator of a study has the same allocation; small grades share a Slurm job (a group).


rule grade:
    input:
        admission="results/{study}/admission/{benchmark}/{instance}.json",
        archive="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/submission.tar.gz",
        record="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/snapshot.json",
    output:
        "results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/grade.json",
    log:
        "results/{study}/logs/episodes/{benchmark}/{condition}/{instance}/{repeat}/grade.log",
    group:
        lambda wildcards: STUDY.group("grade", wildcards.benchmark)
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
        "python scripts/{wildcards.benchmark}_adapter.py {params.options} grade --study results/{wildcards.study}/study.json"
        " --episode {wildcards.condition}/{wildcards.instance}/{wildcards.repeat}"
        " --attempt {resources.attempt} > {log} 2>&1"
