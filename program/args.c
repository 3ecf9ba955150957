#include "program/args.h"

#include <errno.h>
#include <string.h>

#include "program/units.h"

#define HELP_INDENT 30

static int set_choice(const struct arg_option *option, const char *text)
{
	const char *at = option->value;
	uint32_t index = 0;

	for (;;) {
		size_t len = strcspn(at, "|");

		if (strlen(text) == len && strncmp(text, at, len) == 0) {
			if (option->kind == ARG_WORD)
				*(const char **)option->out = text;
			else
				*(uint32_t *)option->out = index;
			return 0;
		}
		if (!at[len])
			return error_set(-EINVAL, "'%s' is not one of %s", text, option->value);
		at += len + 1;
		index++;
	}
}

static int set_value(const struct arg_option *option, const char *text)
{
	uint64_t value;
	int ret;

	switch (option->kind) {
	case ARG_TEXT:
		*(const char **)option->out = text;
		return 0;
	case ARG_COUNT:
		return units_parse_count(text, option->out);
	case ARG_COUNT32:
		ret = units_parse_count(text, &value);
		if (ret == 0 && value > UINT32_MAX)
			ret = error_set(-ERANGE, "%s: too large", text);
		if (ret == 0)
			*(uint32_t *)option->out = (uint32_t)value;
		return ret;
	case ARG_BYTES:
		return units_parse_bytes(text, option->out);
	case ARG_NUMBER:
		return units_parse_number(text, option->out);
	case ARG_DURATION:
		return units_parse_duration(text, option->out);
	case ARG_CHOICE:
	case ARG_WORD:
		return set_choice(option, text);
	case ARG_FLAG:
	case ARG_HEADING:
		break;
	}
	return error_set(-EINVAL, "takes no value");
}

/*
 * Parses the option at argv[*i] and stores its value; moves *i to the value if that is an argument
 * of its own. -EINVAL.
 */
static int parse_option(const struct args *args, int argc, char *const *argv, int *i)
{
	const char *name = argv[*i] + 2, *text;
	size_t len = strcspn(name, "=");
	const struct arg_option *option = NULL;
	int ret;

	for (size_t n = 0; n < args->n_options && !option; n++) {
		const struct arg_option *at = &args->options[n];

		if (at->kind != ARG_HEADING && strlen(at->name) == len &&
		    strncmp(at->name, name, len) == 0)
			option = at;
	}
	if (!option)
		return error_set(-EINVAL, "unknown option --%.*s", (int)(len < 60 ? len : 60),
				 name);
	if (args->seen && option - args->options < 64)
		*args->seen |= UINT64_C(1) << (option - args->options);
	if (option->kind == ARG_FLAG) {
		if (name[len])
			return error_set(-EINVAL, "--%s takes no value", option->name);
		*(bool *)option->out = true;
		return 0;
	}
	if (!name[len] && *i + 1 >= argc)
		return error_set(-EINVAL, "--%s needs a value (%s)", option->name, option->value);
	text = name[len] ? name + len + 1 : argv[++*i];
	ret = set_value(option, text);
	return ret ? error_prefix(-EINVAL, "--%s: ", option->name) : 0;
}

static const char *program_of(const struct args *args)
{
	return args->program ? args->program : "relive";
}

int args_parse(const struct args *args, int argc, char *const *argv)
{
	bool options_over = false;
	size_t n = 0;

	for (int i = 1; i < argc; i++) {
		const char *text = argv[i];
		int ret = 0;

		if (!options_over && strcmp(text, "--") == 0) {
			options_over = true;
			continue;
		}
		if (!options_over && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0))
			return ARGS_HELP;
		if (!options_over && strncmp(text, "--", 2) == 0)
			ret = parse_option(args, argc, argv, &i);
		else if (!options_over && text[0] == '-' && text[1])
			ret = error_set(-EINVAL, "unknown option %.60s: options start with --",
					text);
		else if (n == args->max_positional)
			ret = error_set(-EINVAL, "one argument too many: '%.60s'", text);
		else
			args->positional[n++] = text;
		if (ret)
			return ret;
	}
	if (n < args->min_positional)
		return error_set(-EINVAL, "an argument is missing; usage: %s %s", program_of(args),
				 args->usage);
	return 0;
}

/* Prints text and a newline, and indents each line but the first, which the caller has indented. */
static void print_indented(const char *text, int indent, FILE *file)
{
	for (const char *c = text; *c; c++) {
		fputc(*c, file);
		if (*c == '\n')
			fprintf(file, "%*s", indent, "");
	}
	fputc('\n', file);
}

void args_print_help(const struct args *args, FILE *file)
{
	fprintf(file, "Usage: %s %s\n\n%s\n", program_of(args), args->usage, args->summary);
	if (args->n_options && args->options[0].kind != ARG_HEADING)
		fprintf(file, "\nOptions\n");
	for (size_t i = 0; i < args->n_options; i++) {
		const struct arg_option *option = &args->options[i];
		int width;

		if (option->kind == ARG_HEADING) {
			fprintf(file, "\n%s\n", option->help);
			continue;
		}
		width = fprintf(file, "  --%s%s%s", option->name, option->value ? " " : "",
				option->value ? option->value : "");
		if (width + 2 > HELP_INDENT)
			width = fprintf(file, "\n") - 1;
		fprintf(file, "%*s", HELP_INDENT - width, "");
		print_indented(option->help, HELP_INDENT, file);
	}
	if (args->n_options == 0)
		fprintf(file, "\nOptions\n");
	fprintf(file, "  --help%*sthis page\n", HELP_INDENT - 8, "");
	if (args->notes)
		fprintf(file, "\n%s\n", args->notes);
	if (args->examples) {
		fputs("\nExamples\n  ", file);
		print_indented(args->examples, 2, file);
	}
}
