/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_NUMBER_H
#define GRAY_SCOTT_NUMBER_H

#include <argp.h>

/* What an option's argument says; ends the program with a sentence where it is no number or outside. */
unsigned long number_whole(const struct argp_state *state, const char *option, const char *argument,
                           unsigned long least, unsigned long most);
double number_real(const struct argp_state *state, const char *option, const char *argument,
                   double least, double most);

#endif
