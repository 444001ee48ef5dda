/* What the stand-in libraries know: "key = value" lines of the file that $STANDIN_GPUS names.

   A key of one GPU is "gpu3.uuid"; "gpu.uuid" holds for every GPU that has no line of its own.
   The name of a call is a key too: its value is the code that the call returns, or "hang". */

#ifndef SCENARIO_H
#define SCENARIO_H

#define ALL (-1)

/* The value for one GPU, or for ALL; NULL without one. */
const char *told(int gpu, const char *key);

/* Likewise as a number. */
long long told_number(int gpu, const char *key, long long otherwise);

/* The code that a call is told to return, 0 when it is told nothing; never returns for "hang". */
int fault(int gpu, const char *call);

int gpu_count(void);

/* Word `number` of a value with several, into `word`; 0 where it has no so many. */
int told_word(int gpu, const char *key, int number, char *word, unsigned size);

/* Whether copies are being made on this GPU. */
int busy(int gpu);

#endif
