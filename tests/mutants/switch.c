
/* Which mutation is active, and which test reaches which: see tests/mutants/switch.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int headwise_mutant(int number);
int headwise_mutant(int number) {
    static char seen[1024][64]; /* the end of the name of the test that reached it last */
    const char *active = getenv("HEADWISE_MUTANT"), *reached, *test;
    if (active) return atoi(active) == number;
    reached = getenv("HEADWISE_MUTANTS_REACHED");
    test = getenv("PYTEST_CURRENT_TEST");
    if (!reached || !test || number >= 1024) return 0;
    const size_t length = strlen(test), from = length < 63 ? 0 : length - 63;
    if (!strcmp(seen[number], test + from)) return 0;
    strcpy(seen[number], test + from);
    FILE *file = fopen(reached, "a");
    if (file) {
        const char *blank = strrchr(test, ' ');
        fprintf(file, "%d\t%.*s\n", number, (int)(blank ? blank - test : (long)length), test);
        fclose(file);
    }
    return 0;
}
