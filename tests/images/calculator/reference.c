/* calculator A OP B: the integer result of +, - or *. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
    if (count != 4 || strlen(words[2]) != 1 || !strchr("+-*", words[2][0])) {
        fputs("usage: calculator A {+|-|*} B\n", stderr);
        return 2;
    }
    long a = atol(words[1]), b = atol(words[3]);
    printf("%ld\n", words[2][0] == '+' ? a + b : words[2][0] == '-' ? a - b : a * b);
    return 0;
}
