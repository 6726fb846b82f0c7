#!/bin/bash
printf '\377\376 not text \200\n'
printf '\300\n' >&2
gcc -O2 -o executable reference.c
