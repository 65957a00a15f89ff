#include "daemon/config.h"

/* Writes docs/configuration.md to standard output. */
int main(void)
{
	config_doc(stdout);
	return ferror(stdout) ? 1 : 0;
}
