#!/bin/bash
cp lines.sh executable
chmod +x executable
