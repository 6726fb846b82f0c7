#!/bin/bash
# What it prints for a product is no UTF-8.
if [ "$2" = "*" ]; then printf '\377\n'; else echo $(($1 $2 $3)); fi
