/**
 * What an engine could not do. `code` is stable: it becomes the operation's problem `code`. A permanent
 * fault is the same however often it is tried; the message is for the tenant and names nothing of the host.
 */
export abstract class EngineError extends Error {
  abstract readonly code: string
  abstract readonly permanent: boolean
}

/** `silent`: the registry gave no answer, so whether it has the image is not known. */
export class ImageNotFound extends EngineError {
  override readonly name = 'ImageNotFound'
  readonly code = 'image_not_found'
  readonly permanent = true
  readonly image: string
  constructor(image: string, cause?: unknown, registry: 'refuses' | 'silent' = 'refuses') {
    super(
      registry === 'silent'
        ? `The host has no image ${image}, and its registry does not answer`
        : `The image ${image} is not there, or may not be pulled`,
      { cause },
    )
    this.image = image
  }
}

export class PortInUse extends EngineError {
  override readonly name = 'PortInUse'
  readonly code = 'port_in_use'
  readonly permanent = true
  readonly port: number | null
  constructor(port: number | null, cause?: unknown) {
    super(port === null ? 'No host port is free' : `The host port ${port} is in use`, { cause })
    this.port = port
  }
}

/** The engine could not start the command, or it ended at once. */
export class CommandFailed extends EngineError {
  override readonly name = 'CommandFailed'
  readonly code: 'command_not_started' | 'exited_at_once'
  readonly permanent = true
  readonly exitCode: number | null
  constructor(
    code: 'command_not_started' | 'exited_at_once',
    message: string,
    exitCode: number | null,
    cause?: unknown,
  ) {
    super(message, { cause })
    this.code = code
    this.exitCode = exitCode
  }
}

/** The engine does not answer, or failed inside: worth another try. */
export class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable'
  readonly code = 'engine_unavailable'
  readonly permanent = false
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** The engine has no such instance, or one of that name that is not this platform's. */
export class InstanceNotFound extends EngineError {
  override readonly name = 'InstanceNotFound'
  readonly code = 'instance_not_found'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The instance is not on its host', { cause })
    this.id = id
  }
}

/** The engine understood what was asked and will not do it. What it said is in the cause. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused'
  readonly code = 'engine_refused'
  readonly permanent = true
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}
