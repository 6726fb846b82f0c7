#!/bin/bash
echo wrong
