/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gate.h"

#include <pthread.h>

int __real_sl_transfer_step(struct sl_piece *piece, ssize_t result);
int __wrap_sl_transfer_step(struct sl_piece *piece, ssize_t result);

static _Atomic(bend_function) bending;
static _Atomic unsigned count;

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool closed;
	bool (*pick)(const struct sl_piece *);
	unsigned held;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void pass_gate(const struct sl_piece *piece)
{
	pthread_mutex_lock(&gate.mutex);
	if (gate.closed && (!gate.pick || gate.pick(piece))) {
		gate.held++;
		pthread_cond_broadcast(&gate.changed);
		while (gate.closed)
			pthread_cond_wait(&gate.changed, &gate.mutex);
		gate.held--;
	}
	pthread_mutex_unlock(&gate.mutex);
}

int __wrap_sl_transfer_step(struct sl_piece *piece, ssize_t result)
{
	bend_function function = atomic_load(&bending);

	atomic_fetch_add(&count, 1);
	pass_gate(piece);
	if (function)
		result = function(piece, result);
	return __real_sl_transfer_step(piece, result);
}

void bend(bend_function function)
{
	atomic_store(&count, 0);
	atomic_store(&bending, function);
}

void gate_close(bool (*pick)(const struct sl_piece *piece))
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = true;
	gate.pick = pick;
	pthread_mutex_unlock(&gate.mutex);
	atomic_store(&count, 0);
}

void gate_open(void)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = false;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

bool gate_holds(unsigned n)
{
	struct timespec until;
	bool reached;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&gate.mutex);
	while (gate.held < n && rc == 0)
		rc = pthread_cond_timedwait(&gate.changed, &gate.mutex, &until);
	reached = gate.held >= n;
	pthread_mutex_unlock(&gate.mutex);
	return reached;
}

sluice_op *start_held(sluice_file *file, bool write, void *data, size_t n, uint64_t offset)
{
	sluice_op *op;

	gate_close(NULL);
	op = start_move(file, write, data, n, offset);
	assert_true(gate_holds(1));
	return op;
}

unsigned gate_count(void)
{
	return atomic_load(&count);
}

void gate_reset(void)
{
	bend(NULL);
	gate_open();
}
