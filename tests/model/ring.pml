/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: how operations in stream order move chunks through slots, between storage and a GPU.
 *
 * Two operations, each a read or a write, each with the caller's thread that submits it, somebody
 * who may cancel it, and a stream that the GPU runs. They share a pool of slots and the workers.
 * Spin looks at every order in which all of these can take their steps; tests/model/check says for
 * which sizes. A d_step is one step for everybody else: what is done under the operation's lock, or
 * one command of the GPU, or one copy of a batch.
 *
 * Where the parts are: submission() the caller's thread; stop() the failure rule; store_cpu() and
 * turn_done() the one function that stores the CPU's word; gpu_runs() a stream; RUNNABLE the doorbell;
 * worker() what moves pieces; DONE and end_operation() the return of slots to the pool.
 *
 * What is proved:
 *  - every execution ends, with both operations over and both streams empty: pan finds no state
 *    that nothing leaves but the end, and no cycle. There is no step that can be undone, so there
 *    is no cycle to be fair about;
 *  - whatever is copied or stored for an operation that was not stopped is what was meant to be;
 *  - an operation that is over has no piece in flight and no command on a stream, and its slots
 *    are at rest: both words are equal;
 *  - words only move forward.
 *
 * Not in it: memory order (each store is seen by all at once), a lost device, the legacy stream.
 *
 * PLANT=1.. are errors; Spin must find each. The list is in tests/model/check.
 */

#ifndef PLANT
#define PLANT 0
#endif
#ifndef K
#define K 2 /* slots of an operation: 1 to 3 */
#endif
#ifndef CHUNKS
#define CHUNKS 4 /* of each operation */
#endif
#ifndef WINDOW
#define WINDOW 2 /* chunks that are entered in one step */
#endif
#ifndef PIECES
#define PIECES 2 /* of each chunk */
#endif
#ifndef RINGS
#define RINGS 1 /* what the pool holds, in K slots: 1: the second operation waits for the first */
#endif
/* OVERLAP: the operations overlap in the file, and both are on one stream. */

#define NOBODY 2

/* Turns are counted modulo TURNS, as the words are modulo 2^32. */
#define TURNS 8
#define AHEAD(a, b) (((a) + TURNS - (b)) % TURNS) /* how many turns a is ahead of b */
#define GEQ(a, b) (AHEAD(a, b) < TURNS / 2)
#define NEXT(t) (((t) + 1) % TURNS)
#define BEFORE(t) (((t) + TURNS - 1) % TURNS)

/* Chunks of an operation that may be entered and not at their end. A slot may not have TURNS / 2 of
 * them: on a stop the word that is ahead would seem to be behind. */
#if K == 1
#define BUDGET (TURNS / 2 - 1)
#else
#define BUDGET CHUNKS
#endif

/* ------------------------------------------------------------------------------------- slots */

byte cpu[RINGS * K]; /* the words: this one is stored by the CPU */
byte gpu[RINGS * K]; /* and this one by the GPU, but see end_operation() */

byte entered[RINGS * K]; /* the last turn that an operation entered */
byte written[RINGS * K]; /* the last turn whose WRITE is enqueued: what gpu will come to */
byte ended[RINGS * K];   /* pieces of the turn that is being filled or stored, */
byte flying[RINGS * K];  /* and those that are at it */

#define PART(s, p) ((s) * PIECES + (p))
byte next[RINGS * K * PIECES]; /* the turn that each piece of the slot has next */

/* What each piece of a slot really holds: whose turn, or LOST. */
byte holds[RINGS * K * PIECES];
#define LOST 0
#define DATA(o, t) (1 + (o) * TURNS + (t))

byte owner[RINGS]; /* the operation that has these K slots, or NOBODY */
bool lost[RINGS];  /* one of them is in quarantine */

/* -------------------------------------------------------------------------------- operations */

bool writes[2]; /* to storage */
byte ring[2];   /* whose slots it has, or NOBODY */

/* Guarded by the operation's lock. */
bool stopped[2];   /* failed or cancelled */
bool submitted[2]; /* its submission enters and enqueues nothing more */
byte flight[2];    /* pieces that workers have begun */
bool unwritten[2]; /* a slot is in use on the stream by a command that no WRITE follows */
bool over[2];

byte landed[2];       /* chunks that came where they should, unless stopped */
byte before = NOBODY; /* OVERLAP: the operation that comes first in the order */

#define SLOT(o, i) (ring[o] * K + (i) % K)

/* Temporaries of d_steps. */
hidden byte i, s, p, o;

mtype = { WAIT, COPY, WRITE };
#ifdef OVERLAP
#define STREAM(o) 0
#define STREAM_IDLE(o) (queued[0] + queued[1] == 0)
#define LONGEST (6 * CHUNKS + 2)
#else
#define STREAM(o) (o)
#define STREAM_IDLE(o) (queued[o] == 0)
#define LONGEST (3 * CHUNKS + 1)
#endif
chan stream[2] = [LONGEST] of { mtype, byte /* slot */, byte /* turn */ };
byte queued[2]; /* commands of each operation that have not run */

/* P(o, slot) for all slots of an operation; their sum. */
#if K == 1
#define EACH(P, o) (P(o, SLOT(o, 0)))
#define SUM(P, o) (P(o, SLOT(o, 0)))
#elif K == 2
#define EACH(P, o) (P(o, SLOT(o, 0)) && P(o, SLOT(o, 1)))
#define SUM(P, o) (P(o, SLOT(o, 0)) + P(o, SLOT(o, 1)))
#else
#define EACH(P, o) (P(o, SLOT(o, 0)) && P(o, SLOT(o, 1)) && P(o, SLOT(o, 2)))
#define SUM(P, o) (P(o, SLOT(o, 0)) + P(o, SLOT(o, 1)) + P(o, SLOT(o, 2)))
#endif

/* ------------------------------------------------------------------- the words, from the CPU */

inline store_cpu(slot, turn)
{
	assert(GEQ(turn, cpu[slot]));
	cpu[slot] = turn;
}

/* The last piece of a turn has ended. */
inline turn_done(op, slot, turn)
{
	if
	:: !stopped[op] -> store_cpu(slot, turn);
	:: else -> skip; /* stop() stored more */
	fi
}

/* Failure and cancel: no wait of this operation can hold its stream any more. For a slot with pieces
 * in flight the last of them does the same, so that the GPU does not touch what they move. */
inline stop(op)
{
	if
	:: over[op] && PLANT != 6 -> skip; /* its slots are somebody else's */
	:: else ->
		stopped[op] = true;
		landed[op] = 0;
		if
		:: ring[op] == NOBODY || (PLANT == 1 && writes[op]) -> skip;
		:: else ->
			for (i : 0 .. K - 1) {
				s = SLOT(op, i);
				if
				:: flying[s] && PLANT != 13 -> skip;
				:: else -> store_cpu(s, entered[s]);
				fi
			}
		fi
	fi
}

/* -------------------------------------------------------------------------------- submission */

inline take(op, r)
{
	for (s : (r) * K .. (r) * K + K - 1) {
		assert(cpu[s] == entered[s] && gpu[s] == entered[s]);
	}
	owner[r] = op;
	ring[op] = r;
}

/* The window's turns; from here on their fills can begin. */
inline enter(op, from)
{
	for (i : from .. from + WINDOW - 1) {
		entered[SLOT(op, i)] = NEXT(entered[SLOT(op, i)]);
	}
	assert(!over[op]);
#ifdef OVERLAP
	if
	:: before == NOBODY -> before = op;
	:: else -> skip;
	fi
#endif
}

#define FREE(r) (owner[r] == NOBODY && !lost[r])
#define FIRST(op) (op == 0 || ring[0] != NOBODY || over[0])
/* Counted from the word that comes last. */
#define IN_USE(o, slot) AHEAD(entered[slot], (writes[o] -> cpu[slot] : gpu[slot]))

/* An operation that waits for another one of the file does not enter before that one is submitted:
 * its waits could come between two windows of the other, on the same stream. Looking and entering are
 * one step, under the lock of the order. */
#define MAY_ENTER(o) (before == NOBODY || before == o || submitted[before] || PLANT == 10)

#define ENQUEUE(kind, slot, turn) d_step { stream[STREAM(op)]!kind(slot, turn); queued[op]++; }

proctype submission(byte op)
{
	byte sent;  /* chunks whose commands are enqueued */
	byte slot;

	/* Outside all locks; first come, first served, and the operations come in their order. */
	if
	:: d_step { FREE(0) && FIRST(op) -> take(op, 0); }
#if RINGS == 2
	:: d_step { !FREE(0) && FREE(1) && FIRST(op) -> take(op, 1); }
#endif
	:: lost[0] && lost[RINGS - 1] && PLANT != 7 -> goto refused; /* K slots there never will be */
	:: FREE(0) && FIRST(op) -> goto refused; /* cancelled as it waited */
	fi;

	do
	:: sent < CHUNKS ->
		/* Outside all locks. */
		stopped[op] || SUM(IN_USE, op) + WINDOW <= BUDGET;

		/* The commands are enqueued outside the operation's lock: a stop may come at any time,
		 * but it knows which turns will be waited for. */
		if
#if PLANT == 3
		:: !stopped[op];
		:: stopped[op] -> break;
#elif PLANT == 9
		:: d_step { true -> enter(op, sent); }
		:: stopped[op] -> break;
#else
		:: d_step { !stopped[op] && MAY_ENTER(op) -> enter(op, sent); }
		:: stopped[op] -> break;
#endif
		fi;
		do
		:: slot = SLOT(op, sent);
			/* A read waits until this turn is filled, a write until the last one is stored. */
			if
			:: writes[op] && PLANT != 11 -> ENQUEUE(WAIT, slot, written[slot]);
			:: !writes[op] -> ENQUEUE(WAIT, slot, NEXT(written[slot]));
#if PLANT == 11
			:: writes[op];
#endif
			:: goto refused; /* the driver may refuse any command */
			fi;
			if
			:: ENQUEUE(COPY, slot, NEXT(written[slot]));
			:: goto refused_inside;
			fi;
			if
			:: d_step {
				written[slot] = NEXT(written[slot]);
				stream[STREAM(op)]!WRITE(slot, written[slot]);
				queued[op]++;
				sent++;
			}
			:: goto refused_inside;
			fi;
			if
			:: sent % WINDOW == 0 -> break;
			:: else -> skip;
			fi
		od;
#if PLANT == 3
		skip;
		d_step { enter(op, sent - WINDOW); }
#endif
	:: else -> break;
	od;
	goto out;

refused:
	skip;
	d_step { stop(op); }
	goto out;

refused_inside: /* the slot has a WAIT, perhaps a COPY, and no WRITE */
	skip;
	d_step { stop(op); }
	if
	:: d_step { /* once more, now for all that was entered */
		written[slot] = entered[slot];
		stream[STREAM(op)]!WRITE(slot, written[slot]);
		queued[op]++;
	}
	:: unwritten[op] = true;
	fi;

out:
	skip;
	d_step {
#if PLANT == 5
		/* What is not enqueued was not entered. */
		if
		:: ring[op] != NOBODY ->
			for (i : 0 .. K - 1) {
				entered[SLOT(op, i)] = written[SLOT(op, i)];
			}
		:: else -> skip;
		fi;
#endif
		submitted[op] = true;
		slot = 0;
		sent = 0;
	}
}

/* An operation can be cancelled at any time, or never; a piece that fails does the same. */
proctype cancel(byte op)
{
	ring[op] != NOBODY || over[op];
	if
	:: d_step { true -> stop(op); }
	:: skip;
	fi
}

/* --------------------------------------------------------------------------------------- GPU */

/* A copy is a batch, whose pieces are copied in any order, and others take steps between them. */
#define COPY_PIECE(p) d_step { !(copied & (1 << p)) -> \
		copy_piece(slot, p, turn); \
		copied = copied | (1 << p); \
	}

inline copy_piece(from, piece, t)
{
	o = owner[from / K];
	assert(o != NOBODY);
	if
	:: writes[o] -> holds[PART(from, piece)] = DATA(o, t);
	:: else ->
		assert(stopped[o] || holds[PART(from, piece)] == DATA(o, t));
		holds[PART(from, piece)] = LOST;
	fi
}

/* A stream: one command after the other. */
proctype gpu_runs(byte me)
{
	byte slot, turn;
	byte copied; /* pieces of a batch, as bits */

end:	do
	:: atomic { stream[me]?WAIT(slot, turn) ->
		GEQ(cpu[slot], turn); /* a stream may not end here */
		queued[owner[slot / K]]--;
		slot = 0;
		turn = 0;
	}
	:: stream[me]?COPY(slot, turn) ->
		do
		:: COPY_PIECE(0)
#if PIECES == 2
		:: COPY_PIECE(1)
#endif
		:: d_step { copied == (1 << PIECES) - 1 ->
				o = owner[slot / K];
				if
				:: !writes[o] && !stopped[o] -> landed[o]++;
				:: else -> skip;
				fi;
				queued[o]--;
				slot = 0;
				turn = 0;
				copied = 0;
			}
			break
		od
	:: d_step { stream[me]?WRITE(slot, turn) ->
		assert(turn != gpu[slot] && GEQ(turn, gpu[slot]));
		gpu[slot] = turn;
		queued[owner[slot / K]]--;
		slot = 0;
		turn = 0;
	}
	od
}

/* ----------------------------------------------------------------------------------- workers */

#define GPU_DONE(o, slot) GEQ(gpu[slot], written[slot])
#define CPU_DONE(o, slot) (GEQ(cpu[slot], entered[slot]) || PLANT == 4)

/* Nothing of an operation will touch the file again. That is sooner than over: a stopped operation
 * may be over only when its stream has run out, on which there may be others that come after it. */
#define FILE_DONE(o) (over[o] || (submitted[o] && flight[o] == 0 && EACH(CPU_DONE, o) && \
	PLANT != 12))
#ifdef OVERLAP
#define AFTER_OTHERS(op) (before == op || FILE_DONE(before))
#else
#define AFTER_OTHERS(op) true
#endif

/* The next turn of a slot was entered, and the GPU is done with the slot: for a read it has copied
 * the turn before, for a write it has copied this one. */
#define RUNNABLE(op, slot, piece) (!stopped[op] && \
	next[PART(slot, piece)] != NEXT(entered[slot]) && AFTER_OTHERS(op) && \
	(writes[op] -> GEQ(gpu[slot], next[PART(slot, piece)]) \
	            :  GEQ(gpu[slot], BEFORE(next[PART(slot, piece)])) || PLANT == 2))

inline end_piece()
{
	if
	:: !writes[op] -> holds[PART(slot, piece)] = DATA(op, turn);
	:: else ->
		/* A stopped operation, too, stores its bytes where they belong. */
		assert(holds[PART(slot, piece)] == DATA(op, turn));
	fi;
	ended[slot]++;
	if
	:: ended[slot] == PIECES ->
		ended[slot] = 0;
		turn_done(op, slot, turn);
		if
		:: writes[op] && !stopped[op] -> landed[op]++;
		:: else -> skip;
		fi
	:: else -> skip;
	fi;
	flying[slot]--;
	if
	:: stopped[op] && !flying[slot] && !(PLANT == 1 && writes[op]) ->
		store_cpu(slot, entered[slot]);
	:: else -> skip;
	fi;
	flight[op]--;
	op = NOBODY;
	turn = 0;
}

/* Moves one of the pieces of each turn of a slot: the turns of a slot come one after the other, and
 * nothing else is in order. */
proctype worker(byte slot, piece)
{
	byte op = NOBODY, turn;

end:	do
	:: d_step { owner[slot / K] != NOBODY && RUNNABLE(owner[slot / K], slot, piece) ->
			op = owner[slot / K];
			turn = next[PART(slot, piece)];
			next[PART(slot, piece)] = NEXT(turn);
			flying[slot]++;
			flight[op]++;
			if
			:: !writes[op] -> holds[PART(slot, piece)] = LOST;
			:: else -> assert(holds[PART(slot, piece)] == DATA(op, turn));
			fi
		}
		if
		:: d_step { true -> end_piece(); }
		:: d_step { true -> stop(op); end_piece(); } /* it failed */
		fi
	od
}

/* --------------------------------------------------------------------------------------- end */

/* What has to be so before an operation is over. The CPU's word: for a write that the last turns are
 * stored, of which a piece may not even have begun. A command that no WRITE follows: somebody has to
 * ask the driver whether the stream has run out. */
#define DONE(o) (submitted[o] && flight[o] == 0 && \
	(ring[o] == NOBODY || (EACH(GPU_DONE, o) && EACH(CPU_DONE, o))) && \
	(!unwritten[o] || STREAM_IDLE(o) || PLANT == 8))

proctype end_operation(byte op)
{
	d_step { DONE(op) ->
		over[op] = true;
		assert(flight[op] == 0 && queued[op] == 0);
		assert(stopped[op] || landed[op] == CHUNKS);
		if
		:: ring[op] == NOBODY -> skip;
		:: else ->
			for (i : 0 .. K - 1) {
				s = SLOT(op, i);
				assert(cpu[s] == entered[s]);
				assert(gpu[s] == written[s]);
				assert(gpu[s] == entered[s] || stopped[op]);
#if PLANT != 5
				/* Turns that were entered, perhaps filled, and not enqueued: no command is left
				 * that could store this word, so the CPU does, for once. */
				gpu[s] = entered[s];
#endif
				written[s] = entered[s];
				ended[s] = 0;
				for (p : 0 .. PIECES - 1) {
					next[PART(s, p)] = NEXT(entered[s]);
					holds[PART(s, p)] = LOST;
				}
			}
			owner[ring[op]] = NOBODY;
			lost[ring[op]] = unwritten[op];
#if PLANT != 6
			ring[op] = NOBODY;
#endif
		fi;
		/* How it ended makes no difference to the other one. */
		stopped[op] = true;
		unwritten[op] = false;
		landed[op] = 0;
	}
}

/* ------------------------------------------------------------------------------------ start */

init
{
	d_step {
		for (i : 0 .. RINGS * K - 1) {
			/* Somewhere near the wrap. */
			cpu[i] = TURNS - 2;
			gpu[i] = TURNS - 2;
			entered[i] = TURNS - 2;
			written[i] = TURNS - 2;
			for (p : 0 .. PIECES - 1) {
				next[PART(i, p)] = TURNS - 1;
			}
		}
		for (i : 0 .. RINGS - 1) {
			owner[i] = NOBODY;
		}
		ring[0] = NOBODY;
		ring[1] = NOBODY;
	}
	if
	:: writes[0] = true;
	:: writes[1] = true;
	fi;
	atomic {
		for (i : 0 .. 1) {
			run submission(i);
			run gpu_runs(i);
			run cancel(i);
			run end_operation(i);
		}
		for (i : 0 .. RINGS * K - 1) {
			for (p : 0 .. PIECES - 1) {
				run worker(i, p);
			}
		}
	}
}
