/* SPDX-License-Identifier: Apache-2.0 */
/* One blocking transfer on each worker. */
#include <errno.h>
#include <time.h>

#include "backend/http.h"

/* Rests until the next attempt is due. False: the piece was cancelled. Ended by the time. */
static bool rest(struct sl_http_request *request)
{
	int64_t left;

	while ((left = request->due - sl_now()) > 0) {
		struct timespec slice = {0, (long)SL_MIN(left, 20000000)};

		if (sl_http_request_is_unwanted(request))
			return false;
		nanosleep(&slice, NULL);
	}
	return true;
}

static void run(struct sl_task *task)
{
	struct sl_http_request *request = SL_CONTAINER(task, struct sl_http_request, task);
	enum sl_http_verdict verdict = SL_HTTP_FAILED;

	if (!sl_http_request_prepare(request))
		verdict = sl_http_request_judge(request, sl_http_request_perform(request));
	/* Others have the turn and the connection while this one rests. */
	sl_http_request_give_back(request);
	sl_http_leave(request);
	if (verdict == SL_HTTP_AGAIN && !rest(request)) {
		verdict = SL_HTTP_FAILED;
		sl_http_request_fail(request, -ECANCELED, "cancelled");
	}
	if (verdict == SL_HTTP_AGAIN)
		sl_http_dispatch(request);
	else
		sl_http_request_end(request);
}

void sl_http_easy_submit(struct sl_http_request *request)
{
	request->task.run = run;
	request->task.home = (uintptr_t)request;
	sl_pool_submit(request->http->core->pool, &request->task);
}
