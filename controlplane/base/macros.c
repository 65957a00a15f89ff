#include "base/macros.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "<2>assertion failed: %s at %s:%d\n", expr, file, line);
	abort();
}
