#!/bin/bash
cp lines.py executable
chmod +x executable
