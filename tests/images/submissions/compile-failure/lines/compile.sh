#!/bin/bash
gcc -o executable program.c
