# What a benchmark needs beside its datasets, where it asks for it: files that it downloads by itself, brought in beside
# the controller, since nodes may have no network; and container images, which must be on the nodes already.


rule fetch:
    output:
        "results/{study}/runtime/fetched/{benchmark}.json",
    log:
        "results/{study}/logs/fetch/{benchmark}.log",
    conda:
        "../envs/assize.yaml"
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
        instances=lambda wildcards: STUDY.benchmarks[wildcards.benchmark]["instances"],
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py fetch --study results/{wildcards.study}/study.json > {log} 2>&1"


rule images:
    output:
        "results/{study}/runtime/images/{benchmark}.json",
    log:
        "results/{study}/logs/images/{benchmark}.log",
    conda:
        "../envs/assize.yaml"
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
        instances=lambda wildcards: STUDY.benchmarks[wildcards.benchmark]["instances"],
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py images --study results/{wildcards.study}/study.json > {log} 2>&1"
