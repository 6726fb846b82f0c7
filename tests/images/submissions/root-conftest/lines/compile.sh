#!/bin/bash
cp wrong.sh executable
chmod +x executable
