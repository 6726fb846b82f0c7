# The wheels that evaluators install without a network. Made only for a study with a benchmark that asks for them.


rule wheelhouse:
    input:
        "envs/evaluator-wheelhouse.lock",
    output:
        "results/{study}/runtime/evaluator-wheelhouse/wheelhouse.json",
    log:
        "results/{study}/logs/wheelhouse.log",
    conda:
        "../envs/assize.yaml"
    shell:
        "python scripts/evaluator_wheelhouse.py --root results/{wildcards.study} > {log} 2>&1"
