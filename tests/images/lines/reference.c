/* lines: a tool for text, line by line. README.md is its specification. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char **lines;
static size_t count;
static int missing;

static void add(char *text, size_t length)
{
    if (length && text[length - 1] == '\n')
        length--;
    lines = realloc(lines, (count + 1) * sizeof *lines);
    lines[count++] = strndup(text, length);
}

static void read_stream(FILE *stream)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&text, &room, stream)) >= 0)
        add(text, (size_t)length);
    free(text);
}

static void read_files(char **names)
{
    if (!*names)
        read_stream(stdin);
    for (; *names; names++) {
        FILE *stream = fopen(*names, "r");
        if (!stream) {
            fprintf(stderr, "lines: cannot read %s\n", *names);
            missing = 1;
            continue;
        }
        read_stream(stream);
        fclose(stream);
    }
}

static long number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < 0) {
        fprintf(stderr, "lines: not a number: %s\n", text);
        exit(2);
    }
    return value;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char **)a, *(char **)b);
}

static int by_number(const void *a, const void *b)
{
    double x = strtod(*(char **)a, NULL), y = strtod(*(char **)b, NULL);
    return x < y ? -1 : x > y ? 1 : by_text(a, b);
}

static void reverse(void)
{
    for (size_t i = 0; i < count / 2; i++) {
        char *other = lines[i];
        lines[i] = lines[count - 1 - i];
        lines[count - 1 - i] = other;
    }
}

static void flip(char *text)
{
    for (size_t i = 0, j = strlen(text); i + 1 < j--; i++) {
        char other = text[i];
        text[i] = text[j];
        text[j] = other;
    }
}

static void unique(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < kept && strcmp(lines[i], lines[j]))
            j++;
        if (j == kept)
            lines[kept++] = lines[i];
    }
    count = kept;
}

static char *trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

static void wrap(char *text, size_t width)
{
    size_t used = 0;
    for (char *word = strtok(text, " \t"); word; word = strtok(NULL, " \t")) {
        if (used && used + 1 + strlen(word) > width) {
            putchar('\n');
            used = 0;
        }
        used += (size_t)printf(used ? " %s" : "%s", word);
    }
    putchar('\n');
}

static void field(char *text, long wanted)
{
    char *word = strtok(text, " \t");
    for (; word && wanted > 1; wanted--)
        word = strtok(NULL, " \t");
    puts(word ? word : "");
}

static void replace(const char *text, const char *from, const char *to)
{
    const char *hit;
    while (*from && (hit = strstr(text, from))) {
        printf("%.*s%s", (int)(hit - text), text, to);
        text = hit + strlen(from);
    }
    puts(text);
}

static void rot13(char *text)
{
    for (; *text; text++)
        if (isalpha((unsigned char)*text))
            *text += tolower((unsigned char)*text) < 'n' ? 13 : -13;
}

static void totals(void)
{
    size_t words = 0, letters = 0;
    for (size_t i = 0; i < count; i++) {
        letters += strlen(lines[i]);
        for (char *word = strtok(lines[i], " \t"); word; word = strtok(NULL, " \t"))
            words++;
    }
    printf("%zu %zu %zu\n", count, words, letters);
}

struct entry {
    char *word;
    size_t times;
};

static int by_times(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->times != y->times ? (x->times < y->times ? 1 : -1) : strcmp(x->word, y->word);
}

static void frequencies(void)
{
    struct entry *entries = NULL;
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        for (char *word = strtok(lines[i], " \t"); word; word = strtok(NULL, " \t")) {
            size_t j = 0;
            while (j < known && strcmp(entries[j].word, word))
                j++;
            if (j == known) {
                entries = realloc(entries, ++known * sizeof *entries);
                entries[j] = (struct entry){word, 0};
            }
            entries[j].times++;
        }
    if (known)
        qsort(entries, known, sizeof *entries, by_times);
    for (size_t j = 0; j < known; j++)
        printf("%zu %s\n", entries[j].times, entries[j].word);
}

static const char USAGE[] =
    "usage: lines COMMAND [ARGUMENT...] [FILE...]\n"
    "commands: number reverse flip sort nsort unique head N tail N upper lower count trim squeeze wrap N field N\n"
    "          join TEXT freq replace FROM TO rot13 indent N match TEXT without TEXT\n";

/* How many arguments a command has before its files; -1: no such command. */
static int arguments(const char *command)
{
    static const char *none[] = {"number", "reverse", "flip", "sort", "nsort", "unique", "upper", "lower",
                                 "count", "trim", "squeeze", "freq", "rot13"};
    static const char *one[] = {"head", "tail", "wrap", "field", "join", "indent", "match", "without"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strcmp(command, none[i]))
            return 0;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (!strcmp(command, one[i]))
            return 1;
    return strcmp(command, "replace") ? -1 : 2;
}

static int takes_number(const char *command)
{
    return !strcmp(command, "head") || !strcmp(command, "tail") || !strcmp(command, "wrap") ||
           !strcmp(command, "field") || !strcmp(command, "indent");
}

static void print_each(const char *command, char **given)
{
    long value = takes_number(command) ? number(given[0]) : 0;
    size_t first = 0, last = count;
    int blank = 0;
    if (!strcmp(command, "head") && (size_t)value < count)
        last = (size_t)value;
    if (!strcmp(command, "tail") && (size_t)value < count)
        first = count - (size_t)value;
    for (size_t i = first; i < last; i++) {
        char *line = lines[i];
        if (!strcmp(command, "squeeze")) {
            if (blank && !*line)
                continue;
            blank = !*line;
        }
        if (!strcmp(command, "match") && !strstr(line, given[0]))
            continue;
        if (!strcmp(command, "without") && strstr(line, given[0]))
            continue;
        if (!strcmp(command, "flip"))
            flip(line);
        if (!strcmp(command, "rot13"))
            rot13(line);
        if (!strcmp(command, "trim"))
            line = trim(line);
        for (char *c = line; *c; c++)
            *c = (char)(!strcmp(command, "upper") ? toupper((unsigned char)*c) :
                        !strcmp(command, "lower") ? tolower((unsigned char)*c) : *c);
        if (!strcmp(command, "number"))
            printf("%6zu  %s\n", i + 1, line);
        else if (!strcmp(command, "join"))
            printf("%s%s", i ? given[0] : "", line);
        else if (!strcmp(command, "indent"))
            printf("%*s%s\n", *line ? (int)value : 0, "", line);
        else if (!strcmp(command, "wrap"))
            wrap(line, (size_t)value);
        else if (!strcmp(command, "field"))
            field(line, value);
        else if (!strcmp(command, "replace"))
            replace(line, given[0], given[1]);
        else
            puts(line);
    }
    if (!strcmp(command, "join") && count)
        putchar('\n');
}

int main(int words, char **word)
{
    if (words > 1 && !strcmp(word[1], "--version")) {
        puts("lines 1.0");
        return 0;
    }
    if (words > 1 && !strcmp(word[1], "--help")) {
        fputs(USAGE, stdout);
        return 0;
    }
    if (words < 2) {
        fputs(USAGE, stderr);
        return 2;
    }
    const char *command = word[1];
    int wanted = arguments(command);
    if (wanted < 0) {
        fprintf(stderr, "lines: unknown command: %s\n", command);
        return 2;
    }
    if (words - 2 < wanted) {
        fprintf(stderr, "lines: %s needs %d argument%s\n", command, wanted, wanted == 1 ? "" : "s");
        return 2;
    }
    read_files(word + 2 + wanted);
    if (count && !strcmp(command, "sort"))
        qsort(lines, count, sizeof *lines, by_text);
    if (count && !strcmp(command, "nsort"))
        qsort(lines, count, sizeof *lines, by_number);
    if (!strcmp(command, "reverse"))
        reverse();
    if (!strcmp(command, "unique"))
        unique();
    if (!strcmp(command, "count"))
        totals();
    else if (!strcmp(command, "freq"))
        frequencies();
    else
        print_each(command, word + 2);
    return missing;
}
