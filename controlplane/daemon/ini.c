#include "daemon/ini.h"

#include <string.h>

#include "base/macros.h"

#define BLANKS " \t\r"

/* Ends @text before the blanks at its end; returns where those at its beginning end. */
static char *trim(char *text)
{
	size_t len;

	text += strspn(text, BLANKS);
	len = strlen(text);
	while (len > 0 && strchr(BLANKS, text[len - 1])) {
		len--;
	}
	text[len] = '\0';
	return text;
}

static void cut_comment(char *value)
{
	for (char *c = value; (c = strchr(c, ';')); c++) {
		if (c == value || strchr(BLANKS, c[-1])) {
			*c = '\0';
			return;
		}
	}
}

static int read_section(char *line, const char **section, struct err *err)
{
	char *end;

	cut_comment(line);
	line = trim(line);
	end = strchr(line, ']');
	if (!end || end[1] != '\0' || end == line + 1) {
		return err_set(err, ERR_INVALID, "a section looks like [name]");
	}
	*end = '\0';
	*section = trim(line + 1);
	return 0;
}

static int read_line(char *line, const char **section, ini_fn fn, void *arg, struct err *err)
{
	char *equals;

	line = trim(line);
	if (line[0] == '\0' || line[0] == '#' || line[0] == ';') {
		return 0;
	}
	if (line[0] == '[') {
		return read_section(line, section, err);
	}
	equals = strchr(line, '=');
	if (!equals || equals == line) {
		return err_set(
			err, ERR_INVALID, "neither a [section], a key = value nor a comment");
	}
	*equals = '\0';
	if (!*section) {
		return err_set(
			err, ERR_INVALID, "\"%.64s\" stands before any [section]", trim(line));
	}
	cut_comment(equals + 1);
	return fn(arg, *section, trim(line), trim(equals + 1), err);
}

int ini_read(char *text, ini_fn fn, void *arg, unsigned *ret_line, struct err *err)
{
	const char *section = NULL;

	*ret_line = 0;
	for (char *line = text; line;) {
		char *next = strchr(line, '\n');

		if (next) {
			*next++ = '\0';
		}
		++*ret_line;
		if (read_line(line, &section, fn, arg, err) != 0) {
			return -1;
		}
		line = next;
	}
	return 0;
}
