#include <stdio.h>

#include "api/api_schema.h"

/* Writes docs/api.md to standard output. */
int main(void)
{
	api_write_doc(stdout);
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
