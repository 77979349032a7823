import { problemCodes } from './problem-codes.ts'

/** The first page of the document. */
export const introduction = `A multi-tenant cloud platform: containers, microVMs and VMs with disks and private
networks, load balancers, deploy servers, retrieval and AI workflows. Everything belongs to one tenant; what is another
tenant's does not exist for you (404).

## Authentication

Send \`Authorization: Bearer <token>\` with each request. A user gets a token from \`POST /api/v1/auth/login\`. A machine
gets one from \`POST /oauth/token\` with the id and the secret of an API client (HTTP basic,
\`grant_type=client_credentials\`), good for an hour. Each operation names the permission that it needs. A permission
that is taken away is gone with the next request.

A secret is shown once: in the answer that creates or rotates it, as a field of the resource. Later answers have its last
four characters (\`secret_hint\`). Answers with secrets or persons say \`Cache-Control: no-store\`.

## What takes time

Whatever takes time is accepted with 202: the body is the resource as it is now, and \`Operation-Location\` leads to the
operation. \`GET /api/v1/operations/{id}?wait=30\` answers when it ends, or after 30 s. An operation ends as \`succeeded\`,
\`failed\` (with a problem in \`error\`) or \`cancelled\`. A resource has one operation at a time; \`operation_id\` names it.

## Repeating a request safely

Send \`Idempotency-Key: <any text of yours>\` with a POST. The same request with the same key within 24 hours gets the
first answer, and nothing is done twice; another request with that key is refused. Resources with a \`revision\` take
\`If-Match\` with the ETag on which a change is based.

## Lists

A list answers with \`items\`, \`total\` (all that match) and, if there are more, \`next_cursor\`. \`limit\` is 20, and
at most 100. Any field of the items filters exactly: \`?status=running&memory_mib=64\`, and \`null\` finds what has no
value. Tags filter one by one: \`?tags.env=prod&tags.team=blue\`. All filters must hold. \`q\` finds text in any field.
\`sort_by\` and \`order\` sort.

To walk a list, pass \`next_cursor\` on as \`cursor\`, with the same \`sort_by\` and \`order\`, until an answer has none:
what is created or deleted meanwhile moves nothing. With \`sort_by=created_at&order=asc\` the walk also comes to what is
created while it goes on. \`offset\` counts from the start instead, for pages by number: between two pages, items may move.

## Errors

An error is a problem document (RFC 9457): \`status\`, a stable \`code\`, \`title\`, often \`detail\`, and \`request_id\`,
which names the request in logs. For a mistake in the input, \`errors\` has a JSON pointer and a message for each: 400 for
the query, 422 for the body.

${Object.entries(problemCodes).map(table).join('\n\n')}
`

function table([group, codes]: [string, Record<string, string>]): string {
  const rows = Object.entries(codes).map(([code, remedy]) => `| \`${code}\` | ${remedy} |`)
  return `**${group}**\n\n| code | what to do |\n|---|---|\n${rows.join('\n')}`
}
