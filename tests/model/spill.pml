/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a region leaves memory and comes back (src/blobs/sluiced/spill.h), and what a new server makes of it that finds it half
 * way. Two blobs in one region; one reader, which gets and holds one of them and may die; a server that copies the
 * region, withdraws its blobs, gives the memory up, brings it back, and deletes blobs, and that dies up to DEATHS
 * times, at every store it makes. What a get and a sweep do among themselves is in catalogue.pml: here each is a step.
 *
 * The movers are not in it: they work on memory that nobody changes, and on files and memory that nobody knows until
 * the server puts them into the descriptor table.
 *
 * What is proved:
 *  - what a reader holds is in memory, whole, until it lets go;
 *  - a generation is in one memory, so that a mapping that a client has kept is right;
 *  - each blob that is sealed or away, and was not deleted, has its bytes, in memory or in the copy, whenever the
 *    server has come to an end of something, and after each new server has begun.
 *
 * PLANT=1.. are errors; Spin must find each. The list is in tests/model/check.
 */

#ifndef PLANT
#define PLANT 0
#endif
#ifndef GETS
#define GETS 2
#endif
#ifndef CHANGES
#define CHANGES 4
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

/* Of blobs. */
#define SEALED 1
#define LEAVING 2
#define AWAY 3
#define DEAD 4
#define LIVE(s) (s == SEALED || s == LEAVING || s == AWAY)

/* Of memory: with a row in the descriptor table, or without one. */
#define GONE 0
#define WHOLE 1
#define CUT 2 /* its pages were given up, and it has its row still */

#define MEMORIES 4

/* The catalogue: the word of each blob, and which memory its place names. */
byte state[2], generation[2], where[2];
/* The descriptor table: memory 1 to 3, and the copy: of which memory; 0: there is none. */
byte memory[MEMORIES];
byte copy;
byte last; /* number of memory */

/* What the reader holds: the blob plus 1. */
byte held;

#define HELD(b) (held == (b) + 1)

/* ------------------------------------------------------------------------------------- reader */

proctype reader()
{
	byte b, gets, known_generation, known_where, known_blob;

	do
	:: gets < GETS ->
		gets++;
		if
		:: b = 0;
		:: b = 1;
		fi;
		if
		:: d_step {
			state[b] == SEALED ->
			held = b + 1;
			assert(memory[where[b]] == WHOLE);
			assert(known_blob != b + 1 || known_generation != generation[b] ||
			       known_where == where[b]);
			known_blob = b + 1;
			known_generation = generation[b];
			known_where = where[b];
		   }
		   d_step {
			assert(memory[known_where] == WHOLE);
			held = 0;
		   }
		:: state[b] != SEALED -> skip; /* asks the server */
		fi
	:: gets == GETS -> break;
	od
}

/* -------------------------------------------------------------------------------------- server */

byte changes, deaths;
bool kill;
byte i, next;
bool all_away, any_sealed, any_away;

/* Each store of the server is a step, at which it may die. */

inline check()
{
	d_step {
		assert(state[0] != SEALED || memory[where[0]] == WHOLE);
		assert(state[1] != SEALED || memory[where[1]] == WHOLE);
		assert(state[0] != AWAY || copy == where[0]);
		assert(state[1] != AWAY || copy == where[1]);
	}
}

/* Under another generation, where it is. */
inline keep(b)
{
	d_step { generation[b]++; state[b] = SEALED; }
}

inline look()
{
	d_step {
		all_away = (!LIVE(state[0]) || state[0] == AWAY) && (!LIVE(state[1]) || state[1] == AWAY);
		any_sealed = state[0] == SEALED || state[1] == SEALED;
		any_away = state[0] == AWAY || state[1] == AWAY;
	}
}

inline give_up(m)
{
	memory[m] = CUT;
	memory[m] = GONE;
}

inline withdraw(b)
{
	if
	:: state[b] == SEALED -> state[b] = LEAVING;
	:: else -> skip;
	fi
}

inline sweep(b)
{
	if
	:: state[b] == LEAVING && HELD(b) -> state[b] = SEALED;
	:: state[b] == LEAVING && !HELD(b) -> state[b] = AWAY;
	:: else -> skip;
	fi
}

inline stay(b)
{
	if
	:: state[b] == AWAY -> keep(b);
	:: else -> skip;
	fi
}

/* All blobs of the memory m, which is copied. */
inline leave(m)
{
	withdraw(0);
	withdraw(1);
	sweep(0);
	sweep(1);
	look();
	if
#if PLANT == 1
	:: any_away -> give_up(m);
#else
	:: all_away && any_away -> give_up(m);
#endif
	:: !(all_away && any_away) -> stay(0); stay(1);
	fi
}

inline unveil(b)
{
	if
	:: state[b] == AWAY ->
		d_step {
			where[b] = next;
#if PLANT != 4
			generation[b]++;
#endif
			state[b] = SEALED;
		}
	:: else -> skip;
	fi
}

inline bring_back()
{
	next = last + 1;
	last = next;
#if PLANT == 2
	unveil(0);
	unveil(1);
	memory[next] = WHOLE;
	copy = next;
#elif PLANT == 3
	memory[next] = WHOLE;
	copy = next;
	unveil(0);
	unveil(1);
#else
	memory[next] = WHOLE;
	unveil(0);
	unveil(1);
	copy = next;
#endif
}

/* Nobody holds it: others are dying for a while, which is in catalogue.pml. Memory goes with its last blob. */
inline delete(b)
{
	if
	:: !LIVE(state[1 - b]) || where[1 - b] != where[b] ->
		if
		:: copy == where[b] -> copy = 0;
		:: else -> skip;
		fi;
		if
		:: memory[where[b]] != GONE -> give_up(where[b]);
		:: else -> skip;
		fi
	:: else -> skip;
	fi
}

inline take_over_blob(b)
{
	if
	:: state[b] == LEAVING -> state[b] = SEALED;
	:: else -> skip;
	fi
}

#define IN(b, m) (where[b] == (m) && LIVE(state[b]))
#define IS(b, m, s) (where[b] == (m) && state[b] == (s))

inline take_over_memory(m)
{
	if
	:: memory[m] != GONE && !IN(0, m) && !IN(1, m) -> give_up(m);
	:: memory[m] != GONE && (IS(0, m, AWAY) || IS(1, m, AWAY)) &&
#if PLANT == 5
	   true ->
#elif PLANT == 6
	   false ->
#else
	   (IS(0, m, SEALED) || IS(1, m, SEALED) || copy != m) ->
#endif
		if
		:: IS(0, m, AWAY) -> keep(0);
		:: else -> skip;
		fi;
		if
		:: IS(1, m, AWAY) -> keep(1);
		:: else -> skip;
		fi
	:: memory[m] != GONE && (IS(0, m, AWAY) || IS(1, m, AWAY)) &&
#if PLANT == 5
	   false ->
#elif PLANT == 6
	   true ->
#else
	   !(IS(0, m, SEALED) || IS(1, m, SEALED) || copy != m) ->
#endif
		give_up(m);
	:: else -> skip;
	fi
}

inline take_over()
{
	take_over_blob(0);
	take_over_blob(1);
	i = 1;
	do
	:: i < MEMORIES -> take_over_memory(i); i++;
	:: i == MEMORIES -> break;
	od;
	if
	:: copy && !IN(0, copy) && !IN(1, copy) && memory[copy] == GONE -> copy = 0;
	:: else -> skip;
	fi;
	check();
}

proctype server()
{
	do
	:: {
		take_over();
		do
		:: changes < CHANGES ->
			changes++;
			if
			/* The movers have written it; one copy is looked at here. */
			:: state[0] == SEALED && copy == 0 && memory[where[0]] == WHOLE ->
				copy = where[0];
			:: state[1] == SEALED && copy == 0 && memory[where[1]] == WHOLE ->
				copy = where[1];
			:: copy && memory[copy] == WHOLE &&
			   (!LIVE(state[0]) || where[0] == copy) && (!LIVE(state[1]) || where[1] == copy) ->
				leave(copy);
			:: (state[0] == AWAY || state[1] == AWAY) && last < MEMORIES - 1 -> bring_back();
			/* For want of place. */
			:: copy && memory[copy] == WHOLE && state[0] != AWAY && state[1] != AWAY -> copy = 0;
			:: d_step { LIVE(state[0]) && !HELD(0) -> state[0] = DEAD; } delete(0);
			:: d_step { LIVE(state[1]) && !HELD(1) -> state[1] = DEAD; } delete(1);
			:: skip;
			fi;
			check();
		:: changes == CHANGES -> goto over;
		od
	} unless {
		d_step {
			kill ->
			kill = false;
			i = 0;
			next = 0;
			all_away = false;
			any_sealed = false;
			any_away = false;
		}
	}
	od;
over:
	deaths = DEATHS;
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
		state[0] = SEALED;
		state[1] = SEALED;
		generation[0] = 1;
		generation[1] = 1;
		where[0] = 1;
		where[1] = 1;
		memory[1] = WHOLE;
		last = 1;
		run reader();
		run server();
#if DEATHS > 0
		run killer();
#endif
	}
}
