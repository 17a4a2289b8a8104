/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsluice-mpi: the transport of a writer that the ranks of a communicator share. It knows the
 * public headers only.
 *
 * Threads: the thread in a function of the transport makes the calls of MPI, with its mutex;
 * MPI_Finalize() comes in by an attribute of MPI_COMM_SELF, with the same mutex, after which there
 * are no calls any more.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/mpi.h>

#define TAG  0
#define LATE (-1) /* no error of MPI */

/* A message that is coming. */
struct arrival {
	struct arrival *next;
	int from;
	MPI_Request request;
	void *bytes;
	size_t n;
};

struct transport {
	MPI_Comm comm;
	int key; /* of the attribute that tells of MPI_Finalize() */
	pthread_mutex_t mutex;
	bool ending; /* guarded by mutex: the writer has ended */
	bool finalized;
	struct arrival *first, **last; /* in the order of their arrival */
};

static int transport_error(int rc)
{
	return rc == MPI_SUCCESS ? 0 : rc == MPI_ERR_NO_MEM ? -ENOMEM : -EIO;
}

/* ------------------------------------------------------------------------------------- sending */

/* A number or a pointer, which the writer keeps. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request is no larger than a pointer");

static int transport_send(void *handle, int to, const void *bytes, size_t n, void **out)
{
	struct transport *t = handle;
	MPI_Request request;
	int rc = -ESHUTDOWN;

	if (n > INT_MAX)
		return -EOVERFLOW;
	pthread_mutex_lock(&t->mutex);
	if (!t->finalized)
		rc = transport_error(
			MPI_Isend(bytes, (int)n, MPI_BYTE, to, TAG, t->comm, &request));
	pthread_mutex_unlock(&t->mutex);
	if (!rc)
		memcpy(out, &request, sizeof(request));
	return rc;
}

static int transport_sent(void *handle, void *out)
{
	struct transport *t = handle;
	MPI_Request request;
	int done = 0, rc;

	memcpy(&request, &out, sizeof(request));
	pthread_mutex_lock(&t->mutex);
	rc = t->finalized ? -ESHUTDOWN
	                  : transport_error(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
	pthread_mutex_unlock(&t->mutex);
	return rc ? rc : done;
}

/* ----------------------------------------------------------------------------------- receiving */

/* Begins to receive a message. Returns 1, 0 if there is none, or a negative errno. */
static int arrival_begin(struct transport *t)
{
	MPI_Status status;
	MPI_Message message;
	int there, n,
		rc = transport_error(
			MPI_Improbe(MPI_ANY_SOURCE, TAG, t->comm, &there, &message, &status));

	if (rc || !there)
		return rc;
	MPI_Get_count(&status, MPI_BYTE, &n);
	struct arrival *arrival = calloc(1, sizeof(*arrival));
	if (arrival)
		arrival->bytes = malloc(n ? (size_t)n : 1);
	if (!arrival || !arrival->bytes) {
		free(arrival);
		return -ENOMEM;
	}
	arrival->from = status.MPI_SOURCE;
	arrival->n = (size_t)n;
	rc = transport_error(MPI_Imrecv(arrival->bytes, n, MPI_BYTE, &message, &arrival->request));
	if (rc) {
		free(arrival->bytes);
		free(arrival);
		return rc;
	}
	*t->last = arrival;
	t->last = &arrival->next;
	return 1;
}

/* Whether an earlier message of the same rank is still coming. */
static bool arrival_has_to_wait(const struct transport *t, const struct arrival *arrival)
{
	for (const struct arrival *other = t->first; other != arrival; other = other->next)
		if (other->from == arrival->from)
			return true;
	return false;
}

static int transport_take(struct transport *t, int *from, void **bytes, size_t *n)
{
	int rc;

	do
		rc = arrival_begin(t);
	while (rc > 0);
	for (struct arrival **at = &t->first; !rc && *at; at = &(*at)->next) {
		struct arrival *arrival = *at;
		int done;

		if (arrival_has_to_wait(t, arrival))
			continue;
		rc = transport_error(MPI_Test(&arrival->request, &done, MPI_STATUS_IGNORE));
		if (rc || !done)
			continue;
		*from = arrival->from;
		*bytes = arrival->bytes;
		*n = arrival->n;
		*at = arrival->next;
		if (!*at)
			t->last = at;
		free(arrival);
		return 1;
	}
	return rc;
}

static int transport_receive(void *handle, int *from, void **bytes, size_t *n)
{
	struct transport *t = handle;

	pthread_mutex_lock(&t->mutex);
	int rc = t->finalized ? -ESHUTDOWN : transport_take(t, from, bytes, n);
	pthread_mutex_unlock(&t->mutex);
	return rc;
}

/* --------------------------------------------------------------------------------------- life */

/* A message of no bytes to the others, which would wait for this rank without end. With mutex. */
static void transport_say_farewell(const struct transport *t)
{
	int rank, ranks;
	MPI_Request request;

	MPI_Comm_rank(t->comm, &rank);
	MPI_Comm_size(t->comm, &ranks);
	for (int r = 0; r < ranks; r++)
		if (r != rank && !MPI_Isend(NULL, 0, MPI_BYTE, r, TAG, t->comm, &request))
			MPI_Request_free(&request);
}

/* MPI_Finalize(), or the end of the transport. */
static int transport_attribute_deleted(MPI_Comm comm, int key, void *handle, void *extra)
{
	struct transport *t = handle;

	(void)comm, (void)key, (void)extra;
	pthread_mutex_lock(&t->mutex);
	if (!t->ending)
		transport_say_farewell(t);
	t->finalized = true;
	pthread_mutex_unlock(&t->mutex);
	return MPI_SUCCESS;
}

static void transport_close(void *handle, int clean)
{
	struct transport *t = handle;

	pthread_mutex_lock(&t->mutex);
	bool finalized = t->finalized;
	t->ending = true;
	pthread_mutex_unlock(&t->mutex);
	if (!finalized) {
		MPI_Comm_delete_attr(MPI_COMM_SELF, t->key);
		MPI_Comm_free_keyval(&t->key);
	}
	/* A message that is still on its way would reach the next communicator with its number. Nor
	 * can memory be freed that such a message comes to. */
	if (!finalized && clean && !t->first)
		MPI_Comm_free(&t->comm);
	if (t->first)
		return;
	pthread_mutex_destroy(&t->mutex);
	free(t);
}

/* What the ranks of a node have in common. */
static int transport_look_around(struct transport *t, struct sluice_transport *out)
{
	MPI_Comm node;
	int rc = MPI_Comm_rank(t->comm, &out->rank);

	if (!rc)
		rc = MPI_Comm_size(t->comm, &out->ranks);
	if (!rc)
		rc = MPI_Comm_split_type(t->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	if (rc)
		return rc;
	rc = MPI_Comm_size(node, &out->node_ranks);
	if (!rc)
		rc = MPI_Allreduce(&out->rank, &out->node, 1, MPI_INT, MPI_MIN, node);
	MPI_Comm_free(&node);
	return rc;
}

/* A duplicate of the communicator, if all ranks make it in time (0: without end). Does not spin, as
 * OpenMPI's calls do. After a time-out MPI has its memory. */
static int transport_duplicate(struct transport *t, MPI_Comm comm, int ms)
{
	const struct timespec pause = {0, 200000};
	double begun = MPI_Wtime();
	MPI_Request request;
	int done = 0, rc = MPI_Comm_idup(comm, &t->comm, &request);

	while (!rc && !(rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE)) && !done) {
		if (ms > 0 && (MPI_Wtime() - begun) * 1000 >= ms)
			return LATE;
		nanosleep(&pause, NULL);
	}
	return rc;
}

static int transport_new(MPI_Comm comm, int ms, struct sluice_transport *out)
{
	struct transport *t = calloc(1, sizeof(*t));
	int level, rc;

	if (!t)
		return MPI_ERR_NO_MEM;
	t->last = &t->first;
	pthread_mutex_init(&t->mutex, NULL);
	rc = transport_duplicate(t, comm, ms);
	if (!rc)
		rc = MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
	if (!rc)
		rc = MPI_Query_thread(&level);
	if (!rc)
		rc = transport_look_around(t, out);
	if (!rc)
		rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, transport_attribute_deleted,
		                            &t->key, NULL);
	if (!rc)
		rc = MPI_Comm_set_attr(MPI_COMM_SELF, t->key, t);
	if (rc) {
		if (rc != LATE)
			free(t);
		return rc;
	}
	out->handle = t;
	out->thread = level == MPI_THREAD_MULTIPLE;
	out->send = transport_send;
	out->sent = transport_sent;
	out->receive = transport_receive;
	out->close = transport_close;
	return 0;
}

/* The reason why there can be no transport, or NULL. */
static const char *communicator_objection(MPI_Comm comm)
{
	int there, over, inter = 0;

	MPI_Initialized(&there);
	MPI_Finalized(&over);
	if (!there || over)
		return there ? "MPI is finalised" : "MPI is not initialised";
	if (comm == MPI_COMM_NULL)
		return "the communicator is MPI_COMM_NULL";
	MPI_Comm_test_inter(comm, &inter);
	return inter ? "the communicator is an intercommunicator" : NULL;
}

int sluice_writer_open_mpi(sluice_context *ctx, MPI_Comm comm, const char *path,
                           const struct sluice_writer_options *o, sluice_writer **out)
{
	struct sluice_transport t = {.size = sizeof(t)};
	char sentence[MPI_MAX_ERROR_STRING + 64], text[MPI_MAX_ERROR_STRING];
	const char *objection = communicator_objection(comm);
	int rc = 0, n,
	    ms = o && o->size > offsetof(struct sluice_writer_options, open_ms) ? o->open_ms : 0;

	if (!objection)
		rc = transport_new(comm, ms, &t);
	if (objection) {
		t.error = -EINVAL;
		snprintf(sentence, sizeof(sentence), "sluice_writer_open_mpi: %s", objection);
	} else if (rc == LATE) {
		t.error = -ETIMEDOUT;
		snprintf(sentence, sizeof(sentence),
		         "not all ranks of the communicator have called sluice_writer_open_mpi in "
		         "%d ms",
		         ms);
	} else if (rc) {
		t.error = transport_error(rc);
		MPI_Error_string(rc, text, &n);
		snprintf(sentence, sizeof(sentence), "MPI cannot duplicate the communicator: %s",
		         text);
	}
	t.message = sentence;
	return sluice_writer_open_ranks(ctx, &t, path, o, out);
}

int sluice_writer_open_mpi_fortran(sluice_context *ctx, MPI_Fint comm, const char *path,
                                   const struct sluice_writer_options *o, sluice_writer **out)
{
	return sluice_writer_open_mpi(ctx, MPI_Comm_f2c(comm), path, o, out);
}
