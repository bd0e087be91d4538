/* calls.c - what the scheduler asks of vLLM's Python: grammars. And drafts, which go in.
 *
 *      0.20   quire_sched_update ──► should_advance ──► StructuredOutputManager
 *                                ──► accept_tokens  ──► request.structured_output_request.grammar
 *      0.32                      ──► accept_tokens  ──► StructuredOutputManager
 *
 * The library knows no exceptions: one that Python raises is kept in the core, what is still asked
 * gets the usual answer without Python, and the call under way raises it at its end.
 */
#include "vllm.h"

/* ---- exceptions ---------------------------------------------------------- */

void vllm_keep_error(vllm_core *core)
{
    PyErr_Fetch(&core->error[0], &core->error[1], &core->error[2]);
}

void vllm_drop_or_keep(vllm_core *core, PyObject *answer)
{
    if (answer == NULL)
        vllm_keep_error(core);
    Py_XDECREF(answer);
}

int vllm_truth_or_keep(vllm_core *core, PyObject *answer, int usual)
{
    int is_true = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (is_true >= 0)
        return is_true;
    vllm_keep_error(core);
    return usual;
}

int vllm_raise_kept(vllm_core *core)
{
    if (core->error[0] == NULL)
        return 0;
    core->is_closed = 1;
    PyErr_Restore(core->error[0], core->error[1], core->error[2]);
    core->error[0] = core->error[1] = core->error[2] = NULL;
    return -1;
}

/* ---- tokens -------------------------------------------------------------- */

/* Auxiliary outputs are taken in the order of the step, from requests that have their tokens. */
static int take_aux_up_to(vllm_core *core, const vllm_slot *last)
{
    for (uint32_t row = 0; row < core->max_rows; row++) {
        vllm_slot *slot = &core->slots[core->row_slots[row]];
        if (slot != last && core->num_sampled[row] > 0 && vllm_slot_sync(core, slot) < 0)
            return -1;
        if (core->num_sampled[row] > 0 && slot->aux == NULL)
            slot->aux = vllm_slot_take_aux(core, slot);
        if (slot == last)
            break;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Of the tokens only those stay that were computed. Auxiliary outputs are of the turn before. */
static int turn_early(vllm_core *core, vllm_slot *slot, uint32_t num_prompt)
{
    if (vllm_slot_take(slot, PyList_Size(slot->generated)) < 0 ||
        (core->types.aux_taken != NULL && take_aux_up_to(core, slot) < 0))
        return -1;
    slot->has_turned = 1;
    return vllm_slot_turn(core, slot, num_prompt);
}

/* Whoever is asked sees the tokens that the request has got by then. */
int vllm_slot_sync(vllm_core *core, vllm_slot *slot)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!core->is_updating || slot->generated == NULL || slot->num_taken > 0 ||
        quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK)
        return 0;
    /* A session that has stopped and taken its next input, and ends by an error in this update. */
    if (info.num_prompt_tokens != slot->num_prompt)
        return turn_early(core, slot, info.num_prompt_tokens);
    Py_ssize_t missing = (Py_ssize_t)info.num_tokens - PyList_Size(slot->all_tokens);
    return missing > 0 ? vllm_slot_take(slot, missing) : 0;
}

int vllm_slot_take(vllm_slot *slot, Py_ssize_t count)
{
    for (; slot->num_taken < count; slot->num_taken++) {
        PyObject *token = PyList_GetItem(slot->generated, slot->num_taken);
        if (token == NULL || PyList_Append(slot->all_tokens, token) < 0 ||
            PyList_Append(slot->output_tokens, token) < 0)
            return -1;
    }
    return 0;
}

/* ---- grammars ------------------------------------------------------------ */

/* request.structured_output_request.grammar */
static PyObject *grammar_of(const vllm_slot *slot)
{
    PyObject *part = PyObject_GetAttrString(slot->request, "structured_output_request");
    PyObject *grammar = part == NULL ? NULL : PyObject_GetAttrString(part, "grammar");
    Py_XDECREF(part);
    return grammar;
}

/* 0.32: 1 compiled, 0 not yet, -1 never. */
static int grammar_state(vllm_core *core, const vllm_slot *slot)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.is_ready, slot->request, NULL);
    long state = answer == NULL ? 0 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    if (!PyErr_Occurred())
        return (int)state;
    vllm_keep_error(core);
    return 0;
}

static int grammar_is_ready(void *user, quire_req req)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 0;
    const vllm_slot *slot = vllm_slot_of(core, req);
    return core->types.is_ready == NULL ? vllm_truth_or_keep(core, grammar_of(slot), 0)
                                        : grammar_state(core, slot);
}

static int grammar_should_advance(void *user, quire_req req)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 0;
    PyObject *answer = NULL;
    if (vllm_slot_sync(core, slot) == 0)
        answer = PyObject_CallFunctionObjArgs(core->types.should_advance, slot->request, NULL);
    return vllm_truth_or_keep(core, answer, 0);
}

static int grammar_accept_tokens(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 1;
    PyObject *list = vllm_slot_sync(core, slot) < 0 ? NULL : py_list_tokens(tokens, n);
    PyObject *grammar = NULL;
    PyObject *answer = NULL;
    if (list != NULL && core->types.accept_tokens != NULL)
        answer = PyObject_CallFunctionObjArgs(core->types.accept_tokens, slot->request, list, NULL);
    else if (list != NULL)
        grammar = grammar_of(slot);
    if (grammar != NULL)
        answer = PyObject_CallMethod(grammar, "accept_tokens", "OO", slot->id, list);
    Py_XDECREF(grammar);
    Py_XDECREF(list);
    return vllm_truth_or_keep(core, answer, 1);
}

static uint32_t grammar_validate_tokens(void *user, quire_req req, const quire_token *tokens,
                                        uint32_t n)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return n;
    const vllm_slot *slot = vllm_slot_of(core, req);
    PyObject *list = py_list_tokens(tokens, n);
    PyObject *grammar = NULL;
    PyObject *answer = NULL;
    if (list != NULL && core->types.validate_tokens != NULL)
        answer =
            PyObject_CallFunctionObjArgs(core->types.validate_tokens, slot->request, list, NULL);
    else if (list != NULL)
        grammar = grammar_of(slot);
    if (grammar != NULL)
        answer = PyObject_CallMethod(grammar, "validate_tokens", "O", list);
    Py_ssize_t count = answer == NULL ? -1 : PyObject_Size(answer);
    Py_XDECREF(grammar);
    Py_XDECREF(list);
    Py_XDECREF(answer);
    if (count >= 0)
        return (uint32_t)count;
    vllm_keep_error(core);
    return n;
}

quire_grammar vllm_grammar(vllm_core *core)
{
    return (quire_grammar){.size = sizeof(quire_grammar),
                           .user = core,
                           .is_ready = grammar_is_ready,
                           .should_advance = grammar_should_advance,
                           .accept_tokens = grammar_accept_tokens,
                           .validate_tokens = grammar_validate_tokens};
}

/* ---- drafts -------------------------------------------------------------- */

static int read_drafts(vllm_core *core, PyObject *list, quire_token *drafts, uint32_t *count)
{
    Py_ssize_t size = PyList_Check(list) ? PyList_Size(list) : -1;
    if (size < 0 || size > (Py_ssize_t)core->num_spec_tokens)
        return PY_REFUSE(PyExc_ValueError, "drafts must be a list of at most num_spec_tokens");
    *count = (uint32_t)size;
    return vllm_read_tokens(list, 0, size, drafts);
}

static PyObject *give_drafts(vllm_core *core, PyObject *numbers, PyObject *lists, quire_req *reqs,
                             quire_token *drafts, uint32_t *counts)
{
    Py_ssize_t size = PyList_Size(numbers);
    for (Py_ssize_t i = 0; i < size; i++) {
        reqs[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(numbers, i));
        PyObject *list = PyList_GetItem(lists, i);
        if (PyErr_Occurred() ||
            read_drafts(core, list, drafts + (size_t)i * core->num_spec_tokens, &counts[i]) < 0)
            return NULL;
    }
    int status = quire_sched_update_drafts(core->sched, reqs, (uint32_t)size, drafts,
                                           core->num_spec_tokens, counts);
    if (vllm_raise_kept(core) < 0)
        return NULL;
    return vllm_done(status, "update_draft_token_ids");
}

/* update_drafts(numbers, lists of drafts) */
PyObject *vllm_core_update_drafts(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    PyObject *numbers;
    PyObject *lists;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &numbers, &PyList_Type, &lists))
        return NULL;
    size_t size = (size_t)PyList_Size(numbers);
    if (PyList_Size(lists) != (Py_ssize_t)size)
        return PyErr_Format(PyExc_ValueError, "as many lists of drafts as requests");
    quire_req *reqs = PyMem_Calloc(size + 1, sizeof(*reqs));
    uint32_t *counts = PyMem_Calloc(size + 1, sizeof(*counts));
    quire_token *drafts = PyMem_Calloc(size * core->num_spec_tokens + 1, sizeof(*drafts));
    PyObject *answer = NULL;
    if (reqs == NULL || counts == NULL || drafts == NULL)
        PyErr_NoMemory();
    else
        answer = give_drafts(core, numbers, lists, reqs, drafts, counts);
    PyMem_Free(reqs);
    PyMem_Free(counts);
    PyMem_Free(drafts);
    return answer;
}
