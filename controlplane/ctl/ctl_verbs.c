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
		API_EXEC, false, ctl_exec,
		"  --timeout TIME         The same as --timeout-ms: 90 (seconds), 500ms, 2m, 1h\n"
		"  --output-limit BYTES   The same as --output-limit-bytes\n"
		"  --no-stdin             Leaves our stdin alone\n"
		"  --json                 One answer at the end instead of streams\n"
		"\nCtrl-C goes to the command, a second one at once kills it. Exit status: the "
		"command's, which is\n128 more than a signal that ended it; 124: it ran out of "
		"time; 125: it could not be run, or how it\nended isn't known; 126 and 127: "
		"there is no such program, or it can't be run. In the background its id\nis "
		"printed, for output, input, kill, wait and ps.\n"},
	{NULL, "shell", "ID [--] [COMMAND [ARG...]]",
		"Opens a shell, or runs a command, on a terminal in the sandbox; exits with its "
		"status. Without a terminal of ours it is a shell on plain pipes",
		API_PTY, false, ctl_shell,
		"  --attach EID           Comes back to one that was detached, and what it wrote "
		"last\n"
		"\nCtrl-P Ctrl-Q detaches: the shell goes on. Exit status: as with exec; 0 when "
		"detached.\n"},
	{NULL, "ps", "ID", "Shows the commands that run and the last ones that ended, newest first",
		API_EXEC_LIST, false, ctl_ps},
	{NULL, "output", "ID EID",
		"Writes what a command wrote and is still kept: stdout to stdout, stderr to stderr",
		API_EXEC_OUTPUT, false, ctl_output,
		"  --follow               Goes on until the command ends\n"},
	{NULL, "input", "ID EID",
		"Sends our stdin to a command that was started with --keep-stdin; its stdin stays "
		"open unless --close is given",
		API_EXEC_STDIN, false, ctl_input},
	{NULL, "kill", "ID EID", "Sends a signal to a command and all that it started",
		API_EXEC_KILL, false, ctl_kill},
	{NULL, "wait", "ID EID", "Waits until a command ends, and exits with its status",
		API_EXEC_GET, false, ctl_wait},
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
