/**
 * Swarms expand Go's templates in environment variables and host names. Returns the template that expands to the text: without
 * `{{`, the text itself.
 */
export const literal = (text: string): string => text.replaceAll('{{', '{{"{{"}}')
