/* SPDX-License-Identifier: Apache-2.0 */
#include "system/schedule.h"

static uint64_t seed_of(struct stamp s)
{
	return (uint64_t)s.writer << 32 | s.sequence;
}

void block_write(unsigned char *block, uint32_t index, struct stamp stamp)
{
	memcpy(block, &stamp, sizeof(stamp));
	pattern_fill(block + sizeof(stamp), BLOCK - sizeof(stamp), (uint64_t)index * BLOCK,
	             seed_of(stamp));
}

bool block_read(const unsigned char *block, uint32_t index, struct stamp *out)
{
	size_t n = BLOCK - sizeof(*out);

	memcpy(out, block, sizeof(*out));
	return out->writer <= NOBODY &&
	       pattern_match(block + sizeof(*out), n, (uint64_t)index * BLOCK, seed_of(*out)) == n;
}

static bool covers(const struct step *s, uint32_t block)
{
	return block >= s->first && block < s->first + s->count;
}

/* The write of that thread with that number; numbers count its writes from 0. */
static const struct step *find_write(const struct history *h, uint32_t sequence)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->steps[i].write && h->steps[i].sequence == sequence)
			return &h->steps[i];
	return NULL;
}

/* Two blocks of one read: a write that the one shows and that went to both, the other shows too. */
static void check_whole(const struct history *histories, const struct step *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		struct stamp a = s->seen[i];
		const struct step *w;

		/* One look for each run of blocks with the same stamp. */
		if (a.writer == NOBODY || (i && s->seen[i - 1].writer == a.writer &&
		                           s->seen[i - 1].sequence == a.sequence))
			continue;
		w = find_write(&histories[a.writer], a.sequence);
		if (!w || !covers(w, s->first + i))
			fail_msg("block %u shows write %u of thread %u, which did not go there",
			         s->first + i, a.sequence, a.writer);
		for (uint32_t j = 0; j < s->count; j++) {
			struct stamp b = s->seen[j];

			if (covers(w, s->first + j) &&
			    (b.writer == NOBODY ||
			     (b.writer == a.writer && b.sequence < a.sequence)))
				fail_msg("a read saw write %u of thread %u in block %u, not in %u",
				         a.sequence, a.writer, s->first + i, s->first + j);
		}
	}
}

/* What a thread knows of a block at a point of its history. */
struct knowledge {
	int64_t own;           /* its last write there, or -1 */
	bool overtaken;        /* it has seen another one after it */
	int64_t seen[THREADS]; /* the latest write of each thread that it saw there, or -1 */
};

static void check_seen(struct knowledge *k, unsigned me, uint32_t block, struct stamp s)
{
	if (s.writer == me) {
		if (s.sequence != k->own || k->overtaken)
			fail_msg("thread %u saw its write %u in block %u, after its write %lld%s",
			         me, s.sequence, block, (long long)k->own,
			         k->overtaken ? ", which it had seen overwritten" : "");
		return;
	}
	if (s.writer == NOBODY) {
		for (unsigned t = 0; t < THREADS; t++)
			if (k->own >= 0 || k->seen[t] >= 0)
				fail_msg("thread %u saw block %u as it was at the start, too late",
				         me, block);
		return;
	}
	if (s.sequence < k->seen[s.writer])
		fail_msg("thread %u saw write %u of thread %u in block %u, after write %lld", me,
		         s.sequence, s.writer, block, (long long)k->seen[s.writer]);
	k->seen[s.writer] = s.sequence;
	k->overtaken = k->own >= 0;
}

void check_histories(const struct history *histories, const struct stamp *final)
{
	struct knowledge *known = malloc(BLOCKS * sizeof(*known));

	for (unsigned me = 0; me < THREADS; me++) {
		const struct history *h = &histories[me];

		for (uint32_t b = 0; b < BLOCKS; b++)
			known[b] = (struct knowledge){-1, false, {-1, -1, -1, -1}};
		for (size_t i = 0; i < h->count; i++) {
			const struct step *s = &h->steps[i];

			for (uint32_t j = 0; j < s->count && !s->cancelled; j++) {
				struct knowledge *k = &known[s->first + j];

				if (s->write)
					*k = (struct knowledge){
						s->sequence,
						false,
						{k->seen[0], k->seen[1], k->seen[2], k->seen[3]}};
				else
					check_seen(k, me, s->first + j, s->seen[j]);
			}
			if (!s->write && !s->cancelled)
				check_whole(histories, s);
		}
		/* The end of the file's history is behind everybody's. */
		for (uint32_t b = 0; b < BLOCKS; b++)
			check_seen(&known[b], me, b, final[b]);
	}
	free(known);
}
