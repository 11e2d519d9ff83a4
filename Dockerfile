# The demo bank: docker-compose.yml runs it, with a PostgreSQL beside it.
FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1
WORKDIR /source
COPY pyproject.toml pyproject.toml
COPY bank/requirements.txt bank/requirements.txt
# A dependency group of pyproject.toml, installed as well.
ARG GROUP=""
RUN pip install --no-cache-dir -r bank/requirements.txt ${GROUP:+--group $GROUP}
COPY . .
# --no-deps: what the distributions need is pinned above.
RUN pip install --no-cache-dir --no-deps . ./django_lockstep/lab ./accounts
WORKDIR /bank
COPY manage.py manage.py
COPY bank bank
# Where the races that its pages run say how far they are (LOCKSTEP_LAB_LIVE_FOLDER).
RUN install -d -o nobody .bank
# Without DEBUG, whose pages of errors show the environment; the published port is this machine's alone.
ENV BANK_LOCAL=1 DJANGO_DEBUG=0
USER nobody
CMD ["sh", "-c", "python manage.py migrate && python manage.py runserver --insecure 0.0.0.0:8000"]
