#include "sandbox/job_table.h"

#include "base/macros.h"

enum job_action job_decide(enum job_row row, enum job_word word)
{
	/* clang-format off */
	static const enum job_action actions[JOB_ROW_MAX][JOB_WORD_MAX] = {
		/*                    UNKNOWN      RUNNING      ENDED */
		[JOB_ROW_NONE]   = { JOB_NOTHING, JOB_KILL,    JOB_FORGET  },
		[JOB_ROW_ENDED]  = { JOB_NOTHING, JOB_KILL,    JOB_NOTHING },
		[JOB_ROW_UNSURE] = { JOB_LOSE,    JOB_WAIT,    JOB_WAIT    },
		[JOB_ROW_OURS]   = { JOB_NOTHING, JOB_NOTHING, JOB_NOTHING },
	};
	/* clang-format on */

	ASSERT(row < JOB_ROW_MAX && word < JOB_WORD_MAX);
	return actions[row][word];
}
