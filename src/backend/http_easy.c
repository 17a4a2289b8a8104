/* SPDX-License-Identifier: Apache-2.0 */
/* One blocking transfer on each worker. */
#include "backend/http.h"

static void run(struct sl_task *task)
{
	struct sl_http_request *request = SL_CONTAINER(task, struct sl_http_request, task);
	enum sl_http_verdict verdict = SL_HTTP_FAILED;

	if (!sl_http_request_prepare(request))
		verdict = sl_http_request_judge(request, sl_http_request_perform(request));
	/* Others have the turn, the connection and the worker while this one rests. */
	sl_http_request_give_back(request);
	sl_http_leave(request);
	if (verdict != SL_HTTP_AGAIN)
		sl_http_request_end(request);
	else if (request->due > sl_now())
		sl_http_rest(request);
	else
		sl_http_dispatch(request);
}

void sl_http_easy_submit(struct sl_http_request *request)
{
	request->task.run = run;
	request->task.home = (uintptr_t)request;
	sl_pool_submit(request->http->core->pool, &request->task);
}
