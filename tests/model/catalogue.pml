/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of the store: how clients get blobs without asking, while the server makes, deletes, recycles
 * and moves them, and may be killed at every step. src/blobs/catalogue/catalogue.h says what the steps are called.
 *
 * One server, which makes up to CHANGES changes and dies up to DEATHS times, and READERS clients that get up to GETS
 * blobs each, one at a time, and may die while they hold one. Two slots, two names. Spin looks at every order
 * in which they can take their steps; a step is one store or one load of memory that is shared, but for what is said
 * to be looked at by one party alone.
 *
 * What is proved:
 *  - what a client holds is the blob that it asked for: its bytes are those of that generation, its record has the
 *    name, until it lets go;
 *  - bytes of a generation are always in the same place, so a mapping that a client has kept is right;
 *  - who has seen one blob of a batch sees no other one of it unsealed;
 *  - whatever the server before was doing, the name of each sealed blob leads to it;
 *  - a process that lives and has no connection keeps what it holds, and holds nothing that the server does not
 *    know: a hello that comes late, after its sender has given it up, ends a connection like any other end;
 *  - with OWNERS: one of the slots may be a part of the other, which is its owner. Who holds the owner finds the part
 *    sealed, with its bytes, where it was; and of a part without an owner nothing is left;
 *  - with EXCHANGE: clients ask for a blob to be put in the place of that with an id, which they have seen some time
 *    before. Of those that ask for the same id the server says to one at most that it was done, and then the other
 *    is not there any more; also when it dies between its steps and the next one says what was done;
 *  - what is dying goes in the end, by sweeps that are made when a client says that it has let go of such a one, or
 *    is dead: Spin finds no state in which the server waits and nobody else does anything.
 *
 * Memory order. Stores that are not sequentially consistent come later than they are made, in their order: to
 * the others it is the same as if the one who makes them were slower, unless he loads something in between that
 * depends on the others. There are two such loads: g3 after g2 and d3 after d1. PLANT 1 and 2 make these stores plain
 * ones, which reach the memory at any time until the same party stores something else.
 *
 * What becomes of regions whose blobs are AWAY, and of their files, is in spill.pml; here they come back at once.
 *
 * PLANT=1.. are errors; Spin must find each. The list is in tests/model/check.
 */

#ifndef PLANT
#define PLANT 0
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef GETS
#define GETS 2
#endif
#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define SLOTS 2
#ifdef EXCHANGE
#define NAMES 1
#else
#define NAMES 2
#endif

/* ------------------------------------------------------------------------------------ memory */

#define FREE 0
#define OPEN 1
#define SEALED 2
#define LEAVING 3
#define AWAY 4
#define DYING 5

#define WORD(generation, state) ((generation) * 8 + (state))
#define GENERATION(w) ((w) / 8)
#define STATE(w) ((w) % 8)
#define WITH(w, state) WORD(GENERATION(w), state)
#define LIVE(w) (STATE(w) == OPEN || STATE(w) == SEALED || STATE(w) == LEAVING || STATE(w) == AWAY)

/* The segment. */
byte word[SLOTS];
byte record[SLOTS]; /* whose name it is */
byte batch[SLOTS];
byte index[NAMES]; /* the slot plus 1, or 0 */
#ifdef OWNERS
byte next[SLOTS]; /* of an owner: the slot of its part plus 1, or 0 */
#define PART NAMES /* a record of a part */
#define IS_PART(s) (record[s] == PART)
#define HAS_PART(s) (next[s] == 2 - (s))
#else
#define IS_PART(s) false
#endif
byte publishing;
#ifdef EXCHANGE
/* The ids of blobs, which stay when a blob moves and gets another generation. */
byte id[SLOTS];
byte last_id;

#define CLIENTS 2
#define NOTHING 0
#define ASKED 1
#define DONE 2
#define REFUSED 3
byte want[CLIENTS];      /* the id that is to be replaced */
byte want_slot[CLIENTS]; /* for PLANT 23 */
byte mine[CLIENTS];      /* the id that the server gave the blob that came for it, known by its place */
byte request[CLIENTS];
bool over_for[10]; /* ids of which a client was told that it has replaced them, or that were deleted */
#endif

/* The blobs' memory: the generation whose bytes are in that of a slot, or LOST; and a number of the place. */
byte data[SLOTS];
byte place[SLOTS];
#define LOST 0

/* The clients' references: one each, 0: none. */
byte reference[READERS];
#define REFERENCE(s, generation) ((generation) * SLOTS + (s))
bool gone[READERS]; /* it is dead, and the server knows */
bool ended[READERS];  /* in the references, written by the server */
bool parted[READERS]; /* the server looks at them no more */

/* Stores on their way, PLANT 1 and 2: of references, and of a word. */
byte late_reference[READERS];
byte late_word, late_slot;

/* ------------------------------------------------------------------------------------- clients */

/* Of what a client holds: its part is there. */
#ifdef OWNERS
#define part_is_there(slot)                                                         \
	assert(!next[slot] || (STATE(word[1 - slot]) == SEALED && IS_PART(1 - slot) && \
	                       data[1 - slot] == GENERATION(word[1 - slot])))
#define part_of(slot) (next[slot] -> word[1 - slot] : 0)
#else
#define part_is_there(slot) skip
#define part_of(slot) 0
#endif

bool told; /* the server: somebody has let go of what is dying, or is dead */

proctype reader(byte me)
{
	byte name, slot, seen, gets, known, known_place, known_slot, got_batch, part;

	do
	:: gets < GETS ->
		gets++;
		if
		:: name = 0;
		:: name = NAMES - 1;
		fi;
		slot = index[name];
		if
		:: slot == 0 -> goto again; /* asks the server, as everywhere below */
		:: else -> slot--;
		fi;

#if PLANT == 6
		if
		:: record[slot] != name -> goto again;
		:: else -> skip;
		fi;
#endif
		seen = word[slot]; /* g1 */
		/* Alone here: what would the server answer? Of a batch not "not yet" after another was seen. */
		assert(!(got_batch && STATE(seen) == OPEN && batch[slot] == got_batch));
		if
		:: STATE(seen) != SEALED -> goto again;
		:: else -> skip;
		fi;

#if PLANT == 1
		late_reference[me] = REFERENCE(slot, GENERATION(seen)); /* g2 */
#else
		reference[me] = REFERENCE(slot, GENERATION(seen));
#endif
#if PLANT == 3
		skip;
#elif PLANT == 4
		if
		:: STATE(word[slot]) != SEALED -> goto let_go;
		:: else -> skip;
		fi;
#else
		if
		:: word[slot] != seen -> goto let_go; /* g3 */
		:: else -> skip;
		fi;
#endif
#if PLANT != 6
		if
		:: record[slot] != name -> goto let_go; /* g4 */
		:: else -> skip;
		fi;
#endif
#if PLANT != 10
		if
		:: publishing && publishing == batch[slot] -> goto let_go;
		:: else -> skip;
		fi;
#endif
#if PLANT != 15
		if
		:: ended[me] -> goto let_go; /* g3, of the references */
		:: else -> skip;
		fi;
#endif

		/* It is held, and the server knows its holder. */
		d_step {
			assert(data[slot] == GENERATION(seen));
			assert(record[slot] == name);
			assert(known != GENERATION(seen) || known_slot != slot ||
			       known_place == place[slot]);
			known = GENERATION(seen);
			known_slot = slot;
			known_place = place[slot];
			got_batch = batch[slot];
			part_is_there(slot);
			part = part_of(slot);
		}
		if
		:: skip;
		:: d_step { gone[me] = true; told = true; } /* it dies */
			break;
		fi;
		d_step {
			assert(data[slot] == GENERATION(seen));
			assert(record[slot] == name);
			part_is_there(slot);
			assert(part == part_of(slot));
			part = 0;
		}
let_go:
		late_reference[me] == 0;
#if PLANT == 13
		if
		:: word[slot] == WITH(seen, DYING) -> told = true;
		:: else -> skip;
		fi;
		reference[me] = 0;
#else
		reference[me] = 0;
		if
		:: word[slot] == WITH(seen, DYING) -> told = true;
		:: else -> skip;
		fi;
#endif
again:
		skip;
		/* Who asks the server says hello, and has other references from then on. */
		d_step {
			if
			:: parted[me] -> parted[me] = false; ended[me] = false;
			:: else -> skip;
			fi;
			name = 0;
			slot = 0;
			seen = 0;
		}
	:: else -> break;
	od;
	skip;
	d_step {
		late_reference[me] == 0;
		name = 0;
		slot = 0;
		seen = 0;
		known = 0;
		known_slot = 0;
		known_place = 0;
		got_batch = 0;
		gets = 0;
		part = 0;
	}
}

#ifdef EXCHANGE
#define IS_NAMED(s) (LIVE(word[s]) && STATE(word[s]) != OPEN && record[s] == 0)

inline see(slot)
{
	d_step {
		IS_NAMED(slot) -> want[c] = id[slot];
		want_slot[c] = slot;
		request[c] = ASKED;
	}
}

proctype exchanger(byte c)
{
end:	if
	:: see(0);
	:: see(1);
	fi;
end_asked: request[c] > ASKED;
}

inline tell_done(c)
{
	d_step {
		assert(!over_for[want[c]]);
		assert(!(IS_NAMED(0) && id[0] == want[c]) && !(IS_NAMED(1) && id[1] == want[c]));
		over_for[want[c]] = true;
		request[c] = DONE;
	}
}

/* The next server says whether the blob of a request is there. */
inline locate(c)
{
	if
	:: request[c] == ASKED && mine[c] &&
	   ((IS_NAMED(0) && id[0] == mine[c]) || (IS_NAMED(1) && id[1] == mine[c])) -> tell_done(c);
	:: request[c] == ASKED && mine[c] && !(IS_NAMED(0) && id[0] == mine[c]) &&
	   !(IS_NAMED(1) && id[1] == mine[c]) -> request[c] = REFUSED;
	:: else -> skip;
	fi
}
#endif

/* What brings late stores to the memory. */
proctype memory()
{
end:	do
	:: d_step { late_reference[0] != 0 -> reference[0] = late_reference[0]; late_reference[0] = 0; }
#if READERS > 1
	:: d_step { late_reference[1] != 0 -> reference[1] = late_reference[1]; late_reference[1] = 0; }
#endif
	:: d_step { late_word != 0 -> word[late_slot] = late_word; late_word = 0; late_slot = 0; }
	od
}

/* -------------------------------------------------------------------------------------- server */

byte changes, deaths;
bool kill;
byte s, r, n;
bool held[SLOTS];
byte last_batch; /* in the segment, too */

/* The server's own view of a word. */
#define MINE(s) (late_word != 0 && late_slot == (s) -> late_word : word[s])
#define NAMED(n) ((LIVE(MINE(0)) && record[0] == (n)) || (LIVE(MINE(1)) && record[1] == (n)))

/* A store of the server comes after those that it made before. */
#define store(to, what) d_step { late_word == 0 -> to = what; }

inline mark(slot, state) /* d1 */
{
#if PLANT == 2
	d_step { late_word == 0 -> late_word = WITH(word[slot], state); late_slot = slot; }
#else
	store(word[slot], WITH(word[slot], state));
#endif
}

/* Into what is FREE, where nobody looks: in one step. */
inline write_blob(slot, name)
{
	d_step { late_word == 0 ->
		data[slot] = GENERATION(word[slot]) + 1;
		record[slot] = name;
		batch[slot] = 0;
#ifdef OWNERS
		next[slot] = 0;
#endif
#ifdef EXCHANGE
		last_id++;
		id[slot] = last_id;
#endif
	}
}

#ifdef EXCHANGE
/* The new one is beside the old, and then the old one goes: the one place where that is decided. */
inline exchange(c, slot)
{
	if
	:: IS_NAMED(1 - slot) && (id[1 - slot] == want[c] || (PLANT == 23 && 1 - slot == want_slot[c])) ->
		write_blob(slot, 0);
		d_step { late_word == 0 -> mine[c] = id[slot]; }
		store(word[slot], WORD(GENERATION(word[slot]) + 1, SEALED));
		mark(1 - slot, DYING);
		store(index[0], slot + 1);
		tell_done(c);
	:: else -> request[c] = REFUSED;
	fi
}

/*
 * Of two that have a name the new server deletes the one that comes second in the index, which has a word for each:
 * either. Here there is one word, which is made to lead to the other.
 */
inline drop_second()
{
	if
	:: IS_NAMED(0) && IS_NAMED(1) && PLANT != 24 ->
		if
		:: mark(0, DYING);
		:: mark(1, DYING);
		fi;
	:: else -> skip;
	fi;
	if
	:: IS_NAMED(0) -> store(index[0], 1);
	:: IS_NAMED(1) -> store(index[0], 2);
	:: else -> skip;
	fi
}
#endif

#ifdef OWNERS
inline make_part(slot)
{
	write_blob(slot, PART);
	store(word[slot], WORD(GENERATION(word[slot]) + 1, SEALED));
}

inline make_owner(slot, name)
{
#if PLANT != 17
	make_part(1 - slot);
#endif
	write_blob(slot, name);
	d_step { late_word == 0 -> next[slot] = 2 - slot; }
	store(index[name], slot + 1);
	store(word[slot], WORD(GENERATION(word[slot]) + 1, SEALED));
#if PLANT == 17
	make_part(1 - slot);
#endif
}

/* A part without an owner goes at once, because nobody has a reference to it. */
inline drop_orphan(slot, early)
{
	if
	:: IS_PART(slot) && STATE(word[slot]) != FREE &&
	   (!HAS_PART(1 - slot) || STATE(word[1 - slot]) == FREE ||
	    (early && STATE(word[1 - slot]) == DYING)) ->
		store(word[slot], WITH(word[slot], DYING));
		store(data[slot], LOST);
		store(word[slot], WITH(word[slot], FREE));
	:: else -> skip;
	fi
}

/* The part of an owner that is AWAY leaves its memory, too. */
inline part_leaves(slot)
{
	if
	:: IS_PART(1 - slot) && HAS_PART(slot) && STATE(word[1 - slot]) == SEALED &&
	   (STATE(word[slot]) == AWAY || (PLANT == 19 && STATE(word[slot]) == LEAVING)) ->
		store(word[1 - slot], WITH(word[1 - slot], AWAY));
		store(data[1 - slot], LOST);
	:: else -> skip;
	fi
}
#endif

inline make(slot, name, state)
{
#if PLANT == 7
	store(index[name], slot + 1);
	store(word[slot], WORD(GENERATION(word[slot]) + 1, state));
	store(data[slot], GENERATION(word[slot]));
	store(record[slot], name);
	store(batch[slot], 0);
#else
	write_blob(slot, name);
	store(index[name], slot + 1);
	store(word[slot], WORD(GENERATION(word[slot]) + 1, state));
#endif
}

inline seal_both()
{
	d_step { late_word == 0 -> last_batch++; batch[0] = last_batch; batch[1] = last_batch; }
	store(publishing, last_batch);
	store(word[0], WITH(word[0], SEALED));
	store(word[1], WITH(word[1], SEALED));
	store(publishing, 0);
}

inline look_at_references() /* d3 */
{
	d_step { held[0] = false; held[1] = false; r = 0; told = false; }
	do
	:: d_step { r < READERS ->
			if
			:: reference[r] && !gone[r] && !parted[r] &&
			   reference[r] / SLOTS == GENERATION(MINE(reference[r] % SLOTS)) ->
				held[reference[r] % SLOTS] = true;
			:: else -> skip;
			fi;
			r++;
		}
	:: r == READERS -> break;
	od;
	r = 0;
}

inline settle(slot)
{
	if
	:: STATE(MINE(slot)) == DYING && !held[slot] -> /* d4 */
		store(word[slot], WITH(word[slot], FREE));
		store(data[slot], LOST);
	:: STATE(MINE(slot)) == LEAVING && held[slot] ->
		store(word[slot], WITH(word[slot], SEALED));
	:: STATE(MINE(slot)) == LEAVING && !held[slot] ->
		store(word[slot], WITH(word[slot], AWAY));
	:: else -> skip;
	fi
}

/* The bytes are elsewhere, and come back to other memory. */
inline bring_back(slot)
{
	store(data[slot], LOST);
	d_step { late_word == 0 ->
		data[slot] = GENERATION(word[slot]) + (PLANT == 9 -> 0 : 1);
		place[slot]++;
	}
	store(word[slot], WORD(GENERATION(word[slot]) + (PLANT == 9 -> 0 : 1), SEALED));
}

inline sweep()
{
#if PLANT != 5
	look_at_references();
#endif
#if PLANT == 19
	part_leaves(0);
	part_leaves(1);
#endif
	settle(0);
	settle(1);
	d_step { held[0] = false; held[1] = false; }
#ifdef OWNERS
	drop_orphan(0, PLANT == 18);
	drop_orphan(1, PLANT == 18);
	part_leaves(0);
	part_leaves(1);
	/* Parts come back first. */
	if
	:: (IS_PART(0) || PLANT == 21) && STATE(MINE(0)) == AWAY -> bring_back(0);
	:: (IS_PART(1) || PLANT == 21) && STATE(MINE(1)) == AWAY -> bring_back(1);
	:: else -> skip;
	fi;
#endif
	if
	:: STATE(MINE(0)) == AWAY -> bring_back(0);
	:: else -> skip;
	fi;
	if
	:: STATE(MINE(1)) == AWAY -> bring_back(1);
	:: else -> skip;
	fi
}

inline forget(slot) /* d2 */
{
	if
	:: !IS_PART(slot) && index[record[slot]] == slot + 1 -> store(index[record[slot]], 0);
	:: else -> skip;
	fi
}

inline take_slot_over(slot)
{
	if
	:: STATE(word[slot]) == OPEN && publishing && batch[slot] == publishing && PLANT != 11 ->
		store(word[slot], WITH(word[slot], SEALED));
	:: STATE(word[slot]) == LEAVING ->
		store(word[slot], WITH(word[slot], (PLANT == 12 -> AWAY : SEALED)));
	:: STATE(word[slot]) == DYING && PLANT == 8 ->
		store(data[slot], LOST);
		store(word[slot], WITH(word[slot], FREE));
	:: else -> skip;
	fi
}

/* A connection has ended, and its process lives, as far as is known. */
inline hang_up(c)
{
#if PLANT == 14
	parted[c] = true; /* the hello of a client that has gone cannot be answered */
#else
	if
	:: reference[c] -> skip;
	:: else ->
#if PLANT != 16
		store(ended[c], true);
#endif
		if
		:: reference[c] -> store(ended[c], false);
		:: else ->
#if PLANT == 16
			store(ended[c], true);
#endif
			parted[c] = true;
		fi
	fi
#endif
}

#define RIGHT(n) (index[n] == 0 || (LIVE(word[index[n] - 1]) && record[index[n] - 1] == n))

inline take_over()
{
	take_slot_over(0);
	take_slot_over(1);
	store(publishing, 0);
	if
	:: !parted[0] -> store(ended[0], false);
	:: else -> skip;
	fi;
	n = 0;
	do
	:: n < NAMES && !RIGHT(n) -> store(index[n], 0);
	:: n < NAMES && RIGHT(n) -> n++;
	:: n == NAMES -> break;
	od;
	n = 0;
	/* Who makes an OPEN one dies as well, for simplicity. */
	if
	:: STATE(word[0]) == OPEN -> mark(0, DYING); forget(0);
	:: else -> skip;
	fi;
	if
	:: STATE(word[1]) == OPEN -> mark(1, DYING); forget(1);
	:: else -> skip;
	fi;
#ifdef OWNERS
#if PLANT != 22
	drop_orphan(0, PLANT == 20);
	drop_orphan(1, PLANT == 20);
#endif
	d_step {
		assert(STATE(word[0]) == FREE || !IS_PART(0) || (HAS_PART(1) && STATE(word[1]) != FREE));
		assert(STATE(word[1]) == FREE || !IS_PART(1) || (HAS_PART(0) && STATE(word[0]) != FREE));
	}
#endif
#ifdef EXCHANGE
	drop_second();
#endif
	/* Every sealed one has its name, though nothing was put into the index. Only the server stores any of this. */
	d_step {
		assert(STATE(word[0]) != SEALED || IS_PART(0) || index[record[0]] == 1);
		assert(STATE(word[1]) != SEALED || IS_PART(1) || index[record[1]] == 2);
	}
#ifdef EXCHANGE
	locate(0);
	locate(1);
#endif
}

proctype server()
{
	do
	:: {
		take_over();
		do
		:: changes < CHANGES ->
			changes++;
			if /* which slot, which name */
			:: s = 0;
			:: s = 1;
			fi;
			if
			:: n = 0;
			:: n = NAMES - 1;
			fi;
			if
			:: STATE(MINE(s)) == FREE && !NAMED(n) ->
				if
				:: make(s, n, SEALED);
				:: NAMES == 2 && STATE(MINE(1 - s)) == FREE && !NAMED(1 - n) ->
					make(s, n, OPEN);
					make(1 - s, 1 - n, OPEN);
					seal_both();
#ifdef OWNERS
				:: STATE(MINE(1 - s)) == FREE -> make_owner(s, n);
#endif
				fi
			:: STATE(MINE(s)) == SEALED && !IS_PART(s) ->
#if PLANT == 5
				look_at_references(); /* before the mark */
#endif
				if
				:: mark(s, DYING); forget(s);
#ifdef EXCHANGE
					over_for[id[s]] = true;
#endif
				:: mark(s, LEAVING);
				fi;
				sweep();
			:: STATE(MINE(s)) == DYING -> sweep();
			:: !parted[0] -> hang_up(0);
			:: else -> skip;
			fi;
			d_step { s = 0; n = 0; }
#ifdef EXCHANGE
		:: changes < CHANGES && request[0] == ASKED && STATE(word[0]) == FREE ->
			changes++; exchange(0, 0);
		:: changes < CHANGES && request[0] == ASKED && STATE(word[1]) == FREE ->
			changes++; exchange(0, 1);
		:: changes < CHANGES && request[1] == ASKED && STATE(word[0]) == FREE ->
			changes++; exchange(1, 0);
		:: changes < CHANGES && request[1] == ASKED && STATE(word[1]) == FREE ->
			changes++; exchange(1, 1);
#endif
		:: changes == CHANGES ->
			/* Until nothing is dying; if it is not told it waits for ever. */
#if PLANT == 5
			look_at_references();
#endif
			sweep();
			if
			:: STATE(MINE(0)) != DYING && STATE(MINE(1)) != DYING -> goto over;
			:: told;
			fi;
		od
	} unless {
		d_step {
			kill ->
			kill = false;
			s = 0;
			r = 0;
			n = 0;
			held[0] = false;
			held[1] = false;
		}
	}
	od;
over:
	deaths = DEATHS; /* nobody is left to be killed */
}

proctype killer()
{
end:	do
	:: d_step { deaths < DEATHS && !kill -> kill = true; deaths++; }
	od
}

init
{
	atomic {
		run reader(0);
#if READERS > 1
		run reader(1);
#endif
		run server();
#ifdef EXCHANGE
		run exchanger(0);
		run exchanger(1);
#endif
#if DEATHS > 0
		run killer();
#endif
#if PLANT == 1 || PLANT == 2
		run memory();
#endif
	}
}
