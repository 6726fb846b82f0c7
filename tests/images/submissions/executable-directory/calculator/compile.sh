#!/bin/bash
mkdir executable
