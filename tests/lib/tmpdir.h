#pragma once

/*
 * tmpdir - a directory for one test
 *
 * Purpose: cmocka setup and teardown functions; names below the directory.
 */

#include <stdlib.h>

#include "base/fs.h"
#include "base/xalloc.h"

static char *tmpdir;

static inline int tmpdir_make(void **state)
{
	(void)state;
	tmpdir = xstrdup("/tmp/paddock-test-XXXXXX");
	return mkdtemp(tmpdir) ? 0 : -1;
}

static inline int tmpdir_drop(void **state)
{
	struct err err;
	int r = fs_remove_tree(tmpdir, &err);

	(void)state;
	free(tmpdir);
	return r;
}

/* The caller frees. */
static inline char *tmpdir_path(const char *name)
{
	return xasprintf("%s/%s", tmpdir, name);
}
