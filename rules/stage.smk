# Bring in the datasets that the study declares, by content: studies share them and cannot disagree about them.


rule stage:
    output:
        "results/staged/{sha256}/{filename}",
    log:
        "results/staged/{sha256}/{filename}.log",
    conda:
        "../envs/assize.yaml"
    params:
        study=f"results/{STUDY.name}/study.json",
        dataset=lambda wildcards: STUDY.dataset_of(wildcards.sha256),
    shell:
        "python scripts/stage.py get --study {params.study} --dataset {params.dataset} --output {output}"
        " 2>&1 > {log} | tee -a {log} >&2"
