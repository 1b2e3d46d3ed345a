/* The activation functions of a feed-forward network (section 3.3). */

#ifndef HEADWISE_ACTIVATIONS_H
#define HEADWISE_ACTIVATIONS_H

#include "common.h"

/* In the order of ACTIVATIONS in network.py. */
typedef enum Activation { NONE, RELU, GELU, GELU_TANH, QUICK_GELU, SILU } Activation;

/* x becomes f(x). */
EXPORT void headwise_activate(Activation kind, float *x, int n);

/* x becomes f(x) * by: the gated networks of arXiv:2002.05202. */
void gate(Activation kind, float *x, const float *by, int n);

#endif
