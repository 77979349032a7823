/** One error in the caller's input: its place (JSON pointer or parameter name) and a message. */
export interface InputError {
  pointer: string
  message: string
  /** Its line, if the place is a text of several. */
  line?: number
}

/** RFC 9457, with the stable `code` that clients branch on. */
export interface ProblemDocument {
  type: string
  title: string
  status: number
  code: string
  detail?: string
  request_id?: string
  errors?: InputError[]
  [extension: string]: unknown
}

/**
 * A refusal. The caller may see everything in it, so it has no stack, query or host detail. `headers` go into the HTTP
 * response (`Retry-After`, `WWW-Authenticate`).
 */
export class Problem extends Error {
  override readonly name: string = 'Problem'
  readonly status: number
  readonly code: string
  readonly title: string
  readonly extensions: Record<string, unknown>
  readonly headers: Record<string, string>
  readonly mediaType: string = 'application/problem+json'

  constructor(
    status: number,
    code: string,
    title: string,
    detail?: string,
    more: { extensions?: Record<string, unknown>; headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    super(detail ?? title, { cause: more.cause })
    this.status = status
    this.code = code
    this.title = title
    this.extensions = more.extensions ?? {}
    this.headers = more.headers ?? {}
  }

  /** The response body. */
  answer(requestId?: string): object {
    return this.document(requestId)
  }

  document(requestId?: string): ProblemDocument {
    return {
      type: `urn:keelson:problem:${this.code}`,
      title: this.title,
      status: this.status,
      code: this.code,
      ...(this.message === this.title ? {} : { detail: this.message }),
      ...(requestId ? { request_id: requestId } : {}),
      ...this.extensions,
    }
  }
}

export class InvalidInput extends Problem {
  /** 422 for a body that parses but is invalid; 400 for an error in the query or the syntax. */
  constructor(status: 400 | 422, errors: InputError[], detail?: string) {
    super(status, 'invalid_input', 'The request is invalid', detail, { extensions: { errors } })
  }
}

export class Unauthenticated extends Problem {
  constructor(detail: string, code = 'unauthenticated') {
    super(401, code, 'Authentication is required', detail, {
      headers: { 'WWW-Authenticate': 'Bearer realm="keelson"' },
    })
  }
}

export class PermissionDenied extends Problem {
  constructor(permission: string) {
    super(403, 'permission_denied', 'Permission denied', `This needs the permission ${permission}`, {
      extensions: { permission },
    })
  }
}

/** A caller can grant, change or revoke only permissions that the caller has. */
export class GrantDenied extends Problem {
  constructor(missing: string[]) {
    super(
      403,
      'grant_denied',
      'You lack this permission yourself',
      `Only a holder of ${missing.join(', ')} can grant, change or revoke it`,
      { extensions: { permissions: missing } },
    )
  }
}

/** An error of the token endpoint, in OAuth's format (RFC 6749, 5.2). */
export class TokenRefused extends Problem {
  override readonly mediaType = 'application/json'

  constructor(
    code: 'invalid_request' | 'invalid_client' | 'invalid_scope' | 'unsupported_grant_type',
    detail: string,
  ) {
    const challenge = { 'WWW-Authenticate': 'Basic realm="keelson"' }
    const headers = { 'Cache-Control': 'no-store', ...(code === 'invalid_client' ? challenge : {}) }
    super(code === 'invalid_client' ? 401 : 400, code, 'No token', detail, { headers })
  }

  override answer(): object {
    return { error: this.code, error_description: this.message }
  }
}

/**
 * The notification is not from the mail topic, or not accepted now. The sender may be anyone, so no reason is given.
 */
export class NotificationRefused extends Problem {
  constructor() {
    super(403, 'notification_refused', 'The notification was refused')
  }
}

/** Also the answer for another tenant's resource: it must not reveal that the resource exists. */
export class NotFound extends Problem {
  constructor(what: string) {
    super(404, 'not_found', 'Not found', `No such ${what}`)
  }
}

export class NameTaken extends Problem {
  constructor(what: string, name: string) {
    super(409, 'name_taken', 'The name is taken', `A ${what} named ${name} already exists`)
  }
}

export class StateConflict extends Problem {
  constructor(verb: string, state: string) {
    super(409, 'state_conflict', 'Not possible in this state', `Cannot ${verb} while ${state}`, {
      extensions: { state },
    })
  }
}

/** The change is based on another revision than the present one. */
export class RevisionDiffers extends Problem {
  constructor(revision: number) {
    super(
      412,
      'revision_differs',
      'The resource was changed meanwhile',
      `Its revision is now ${revision}: get it, and repeat the change`,
      { extensions: { revision } },
    )
  }
}

export class OperationInProgress extends Problem {
  constructor(operationId: string) {
    super(409, 'operation_in_progress', 'Another operation is in progress', undefined, {
      extensions: { operation_id: operationId },
    })
  }
}

export class QuotaExceeded extends Problem {
  constructor(limit: string, allowed: number, used: number, asked: number) {
    super(
      409,
      'quota_exceeded',
      'The tenant’s limit is reached',
      `${limit} is ${allowed}: ${used} in use, ${asked} requested`,
      {
        extensions: { limit, allowed, used, asked },
      },
    )
  }
}

export class IdempotencyMismatch extends Problem {
  constructor() {
    super(422, 'idempotency_mismatch', 'The Idempotency-Key was used with another request')
  }
}

/** The path is a WebSocket, and the request is not a valid handshake. */
export class UpgradeRequired extends Problem {
  constructor() {
    super(
      426,
      'upgrade_required',
      'This path needs a WebSocket',
      'Connect with a WebSocket client, version 13',
      {
        headers: { Upgrade: 'websocket', Connection: 'Upgrade', 'Sec-WebSocket-Version': '13' },
      },
    )
  }
}

export class TooManyRequests extends Problem {
  constructor(retryAfterSec: number, detail = `Try again in ${retryAfterSec} s`) {
    super(429, 'too_many_requests', 'Too many requests', detail, {
      headers: { 'Retry-After': String(retryAfterSec) },
    })
  }
}

export class Unavailable extends Problem {
  constructor(detail: string, cause?: unknown) {
    super(503, 'unavailable', 'Temporarily unavailable', detail, { headers: { 'Retry-After': '2' }, cause })
  }
}
