/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Plain words for settings, for reports. Any thread. */
#ifndef KELVIN_LAB_WORDS_H
#define KELVIN_LAB_WORDS_H

/* "disk bus" for drive.if; NULL: the key says it best. */
const char *words_for(const char *key);

#endif
