#include "base/macros.h"
#include "ctl/ctl.h"

const struct ctl_verb ctl_verbs[] = {
	{NULL, "create", "[NAME]", "Makes a sandbox and waits until it runs", API_SANDBOX_CREATE,
		false, ctl_create},
	{NULL, "list", "", "Lists your sandboxes, newest first", API_SANDBOX_LIST, false, ctl_list},
	{NULL, "get", "ID", "Shows one sandbox", API_SANDBOX_GET, false, ctl_one},
	{NULL, "exec", "ID [--] COMMAND [ARG...]",
		"Runs a command with our stdin, unless that is a terminal or --no-stdin is given; "
		"exits with its status. With --command TEXT the guest's shell runs it",
		API_EXEC, false, ctl_exec},
	{NULL, "results", "ID",
		"Shows how the last commands ended, newest first; by the id also after the "
		"sandbox's end",
		API_EXEC_LIST, false, ctl_results},
	{NULL, "push", "ID LOCAL REMOTE", "Copies a local file (- is stdin) into a sandbox",
		API_FILE_WRITE, false, ctl_push},
	{NULL, "pull", "ID REMOTE [LOCAL]",
		"Copies a file out of a sandbox (without LOCAL to stdout)", API_FILE_READ, false,
		ctl_pull},
	{NULL, "ls", "ID [PATH]", "Lists a directory in a sandbox", API_FILE_READ, false, ctl_ls},
	{NULL, "extend", "ID MINUTES", "Moves the expiry", API_SANDBOX_EXTEND, false, ctl_extend},
	{NULL, "restart", "ID", "Restarts a sandbox, or starts a stopped one; its disk stays",
		API_SANDBOX_RESTART, false, ctl_one},
	{NULL, "reset", "ID", "Gives a sandbox a fresh disk: all files in it go", API_SANDBOX_RESET,
		false, ctl_one},
	{NULL, "destroy", "ID...", "Ends sandboxes and removes all that they had",
		API_SANDBOX_DELETE, false, ctl_destroy},
	{NULL, "service", "", "Shows version, limits, sizes and images of the service",
		API_SERVICE_INFO, false, ctl_service},
	{"account", "create", "NAME", "Makes an account", API_ACCOUNT_CREATE, true,
		ctl_account_create},
	{"account", "list", "", "Lists the accounts", API_ACCOUNT_LIST, true, ctl_account_list},
	{"key", "create", "ACCOUNT [NAME]", "Makes an API key and prints it, this once",
		API_KEY_CREATE, true, ctl_key_create},
	{"key", "list", "[ACCOUNT]", "Lists API keys, without their secret", API_KEY_LIST, true,
		ctl_key_list},
	{"key", "revoke", "KEY-ID", "Makes a key worthless at once", API_KEY_REVOKE, true,
		ctl_key_revoke},
	{NULL, "images", "", "Lists the images and whether they are sound", API_IMAGE_LIST, true,
		ctl_images},
	{NULL, "doctor", "", "Checks the host and says how to fix what is wrong", API_DOCTOR, true,
		ctl_doctor},
	{NULL, "strays", "",
		"Lists what is left without a live record, and removes it with --reap; also while "
		"the "
		"service is down, with --config FILE for its settings. Exits with 0: none are "
		"left, 1: "
		"some are, others: it failed",
		API_STRAYS, true, ctl_strays},
};
const size_t ctl_verb_count = ARRAY_SIZE(ctl_verbs);
