#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "tests/fuzz/fuzz.h"

/* A fuzz target's main(): the files of the directory, each once. */

static void replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	char bytes[65536];

	if (!file) {
		perror(path);
		exit(1);
	}
	size_t n = fread(bytes, 1, sizeof bytes, file);

	fclose(file);
	/* As libFuzzer does: nothing behind the last byte, so that a sanitizer sees who reads it.
	 */
	_cleanup_free_ uint8_t *copy = xmemdup(bytes, n);

	fprintf(stderr, "%s\n", path); /* meson shows it where this fails */
	LLVMFuzzerTestOneInput(copy, n);
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	size_t count = 0;

	if (!dir) {
		fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
		return 2;
	}
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		if (entry->d_type != DT_DIR) {
			_cleanup_free_ char *path = xasprintf("%s/%s", argv[1], entry->d_name);

			replay(path);
			count++;
		}
	}
	closedir(dir);
	if (count == 0) {
		fprintf(stderr, "%s is empty\n", argv[1]);
	}
	return count == 0;
}
