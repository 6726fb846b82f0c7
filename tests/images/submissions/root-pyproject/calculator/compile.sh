#!/bin/bash
gcc -O2 -o executable reference.c
