#!/bin/bash
gcc -O2 -o lines reference.c
cp lines.sh executable
chmod +x executable
