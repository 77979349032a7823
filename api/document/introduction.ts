import { problemCodes } from './problem-codes.ts'

/** The first page of the document. */
export const introduction = `A multi-tenant cloud platform: containers, microVMs and VMs with disks and private
networks, load balancers, deploy servers, retrieval and AI workflows. Every resource belongs to one tenant. A resource
of another tenant answers 404, as if it did not exist.

## Authentication

Send \`Authorization: Bearer <token>\` with each request. A user gets a token from \`POST /api/v1/auth/login\`. A machine
gets one from \`POST /oauth/token\` with the id and the secret of an API client (HTTP basic,
\`grant_type=client_credentials\`); it is valid for an hour. Each operation names the permission that it needs. A revoked
permission stops working with the next request.

A secret is shown once: as a field of the resource, in the answer that creates or rotates it. Later answers have its last
four characters (\`secret_hint\`). Answers with secrets or personal data have the header \`Cache-Control: no-store\`.

## Work that takes time

The API accepts work that takes time with 202: the body is the resource as it is now, and the header
\`Operation-Location\` has the URL of the operation. \`GET /api/v1/operations/{id}?wait=30\` answers when the operation
ends, or after 30 s. An operation ends as \`succeeded\`, \`failed\` (with a problem in \`error\`) or \`cancelled\`. A
resource has at most one operation at a time; its \`operation_id\` names it.

## Repeating a request safely

Send \`Idempotency-Key: <any text of yours>\` with a POST. If you repeat the request with the same key within 24 hours,
you get the first answer, and nothing is done twice. Another request with that key is refused. For a resource with a
\`revision\`, send \`If-Match\` with the ETag on which your change is based.

## Lists

A list answers with \`items\`, \`total\` (the number of all matching items) and, if there are more, \`next_cursor\`.
\`limit\` is 20 by default, and at most 100. Any field of the items filters exactly: \`?status=running&memory_mib=64\`;
\`null\` finds items without a value. Tags filter one by one: \`?tags.env=prod&tags.team=blue\`. An item must match all
filters. \`q\` finds text in any field. \`sort_by\` and \`order\` sort.

To walk a list, send each \`next_cursor\` as \`cursor\`, with the same \`sort_by\` and \`order\`, until an answer has none.
Items that are created or deleted meanwhile do not move the others. With \`sort_by=created_at&order=asc\`, the walk also
reaches items that are created during it. \`offset\` counts from the start instead, for pages by number: items may move
between two pages.

## Errors

An error is a problem document (RFC 9457): \`status\`, a stable \`code\`, \`title\`, often \`detail\`, and \`request_id\`,
which identifies the request in logs. If the input is invalid, \`errors\` has a JSON pointer and a message for each
mistake: the status is 400 for the query, and 422 for the body.

${Object.entries(problemCodes).map(table).join('\n\n')}
`

function table([group, codes]: [string, Record<string, string>]): string {
  const rows = Object.entries(codes).map(([code, remedy]) => `| \`${code}\` | ${remedy} |`)
  return `**${group}**\n\n| code | what to do |\n|---|---|\n${rows.join('\n')}`
}
